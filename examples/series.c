/* SPDX-License-Identifier: Apache-2.0 */
/* A training loop that saves every 10 steps and resumes from the latest complete checkpoint:
 * series [FOLDER [STEPS]]. Run it again with more steps to see it resume. */
#include <reshard/reshard_folder.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const char    *folder = argc > 1 ? argv[1] : "run";
    int64_t        steps = argc > 2 ? strtoll(argv[2], NULL, 10) : 50, step = 0;
    float          weight[4] = { 0 };
    rsd_view       view = { .box = { .ndim = 1, .len = { 4 } }, .data = weight };
    rsd_save_opts  saving = { .size = sizeof(saving), .overwrite = true };
    rsd_prune_opts keep = { .size = sizeof(keep), .last = 2, .every = 100 };
    rsd_series    *series = NULL;
    rsd_state     *state = NULL;
    rsd_error      err = { .code = 0 };
    char           path[4096];
    rsd_err        rc = rsd_series_open(NULL, folder, &series, &err);

    if (!rc)
        rc = rsd_state_create(&state, &err);
    if (!rc)
        rc = rsd_state_tensor(state, "w", NULL, RSD_F32, 1, (int64_t[]){ 4 }, 1, &view, &err);
    if (!rc && rsd_series_latest(series, NULL, &step, NULL) == RSD_OK) {
        rsd_series_path(series, step, path, sizeof(path));
        rc = rsd_load(path, NULL, state, NULL, &err);
        printf("resumed from %s\n", path);
    }
    while (!rc && step < steps) {
        weight[++step % 4] += 1; /* train */
        if (step % 10 != 0)
            continue;
        rsd_series_path(series, step, path, sizeof(path));
        rc = rsd_save(path, NULL, state, &saving, &err);
        if (!rc)
            rc = rsd_series_prune(series, NULL, &keep, &err);
    }
    for (size_t i = 0; !rc && i < rsd_series_count(series); i++) {
        rsd_step s = { .size = sizeof(s) };

        rc = rsd_series_step(series, i, &s, &err);
        printf("%s\n", s.name);
    }
    if (rc)
        fprintf(stderr, "series: %s\n", err.msg);
    rsd_state_free(state);
    rsd_series_close(series);
    return rc ? 1 : 0;
}
