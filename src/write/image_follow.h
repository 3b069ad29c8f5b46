/* SPDX-License-Identifier: Apache-2.0 */
/* Jointly written files have one content, rank 0's, whatever values the other ranks hold. */
#ifndef RSI_IMAGE_FOLLOW_H
#define RSI_IMAGE_FOLLOW_H

#include "comm/comm.h"
#include "write/image.h"

/* Makes the images of all ranks equal to rank 0's: where they differ, rank 0 sends its pickle and
 * the bytes of its values to all. `mine` is this rank's result of making the image; if one rank
 * failed, all fail. [collective] */
rsd_err rsi_image_follow(rsi_image *image, const rsd_state *state, rsd_comm *comm, rsd_err mine,
                         rsd_error *err);

#endif
