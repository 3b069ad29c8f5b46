#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands that the documents print.
exec "$(dirname "$0")/../docs/run-commands" "${RESHARD:-build/reshard}"
