/* SPDX-License-Identifier: Apache-2.0 */
/* Files that ranks write together have one content, whatever values each rank holds: rank 0's. */
#ifndef RSI_IMAGE_FOLLOW_H
#define RSI_IMAGE_FOLLOW_H

#include "comm/comm.h"
#include "write/image.h"

/* The images of all ranks become that of rank 0, if they aren't already: then its pickle and what
 * its values bring along go to all. `mine` is how making the image went here; a rank that failed
 * fails all. [collective] */
rsd_err rsi_image_follow(rsi_image *image, const rsd_state *state, rsd_comm *comm, rsd_err mine,
                         rsd_error *err);

#endif
