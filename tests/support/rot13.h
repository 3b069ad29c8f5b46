/* SPDX-License-Identifier: Apache-2.0 */
/* The example of a transform: "stream.rot13", which despite its name swaps the case of ASCII
 * letters, as the transform of that name in PyTorch's tests does. Undoing it is doing it again. */
#ifndef ROT13_H
#define ROT13_H

#include "format/transform.h"

const rsd_transform *rot13(void);

#endif
