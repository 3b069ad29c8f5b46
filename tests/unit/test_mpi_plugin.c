/* SPDX-License-Identifier: Apache-2.0 */
/* Which library is loaded under which launcher. That it works is tests/mpi/test_launched.c's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/comm.h"
#include "comm/mpi_plugin.h"

#include <stdlib.h>
#include <string.h>

static const char *const *variables; /* name, value, ..., NULL */

static const char *fake_env(const char *name)
{
    for (const char *const *v = variables; *v; v += 2)
        if (strcmp(v[0], name) == 0)
            return v[1];
    return NULL;
}

static rsi_launch find(const char *const *vars)
{
    rsi_launch launch;
    rsd_error  err;

    variables = vars;
    assert_int_equal(rsi_launch_find(fake_env, &launch, &err), RSD_OK);
    return launch;
}

static void a_program_that_nobody_launched_is_alone(void **state)
{
    const char *const batch[] = { "SLURM_PROCID", "0", "SLURM_NTASKS", "8", NULL };

    (void)state;
    assert_null(find((const char *const[]){ NULL }).launcher);
    assert_null(find(batch).launcher); /* the script of a job, not one of its tasks */
}

static void each_launcher_has_its_library(void **state)
{
    const char *const openmpi[] = {
        "OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "4", "PMIX_RANK", "1", NULL
    };
    const char *const mpich[] = { "PMI_RANK", "0", "PMI_SIZE", "2", NULL };
    const char *const pmix[] = { "PMIX_RANK", "0", "SLURM_PROCID", "0", NULL };

    (void)state;
    assert_string_equal(find(openmpi).library[0], "libreshard_mpi_openmpi.so.1");
    assert_null(find(openmpi).library[1]);
    assert_string_equal(find(mpich).library[0], "libreshard_mpi_mpich.so.1");
    assert_string_equal(find(pmix).library[0], "libreshard_mpi_openmpi.so.1");
    assert_string_equal(find(pmix).library[1], "libreshard_mpi_mpich.so.1");
}

static void a_single_rank_needs_no_mpi(void **state)
{
    const char *const openmpi[] = { "OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "1",
                                    NULL };
    const char *const mpich[] = { "PMI_RANK", "0", "PMI_SIZE", "1", NULL };

    (void)state;
    assert_null(find(openmpi).launcher);
    assert_null(find(mpich).launcher);
}

static void the_variable_of_the_user_decides(void **state)
{
    const char *const none[] = { "RESHARD_MPI", "none", "PMI_RANK", "0", NULL };
    const char *const mpich[] = { "RESHARD_MPI", "mpich", "OMPI_COMM_WORLD_RANK", "0", NULL };
    const char *const wrong[] = { "RESHARD_MPI", "lam", NULL };
    rsi_launch        launch;
    rsd_error         err;

    (void)state;
    assert_null(find(none).launcher);
    assert_string_equal(find(mpich).library[0], "libreshard_mpi_mpich.so.1");
    variables = wrong;
    assert_int_equal(rsi_launch_find(fake_env, &launch, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "RESHARD_MPI is \"lam\", it can be openmpi, mpich or none");
}

static void tasks_that_cannot_find_each_other_are_told(void **state)
{
    const char *const srun[] = { "SLURM_PROCID", "3", "SLURM_STEP_NUM_TASKS", "8", NULL };
    rsi_launch        launch;
    rsd_error         err;

    (void)state;
    variables = srun;
    assert_int_equal(rsi_launch_find(fake_env, &launch, &err), RSD_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "8 tasks"));
    assert_non_null(strstr(err.msg, "--mpi=pmix"));
}

static void without_a_launcher_the_comm_is_one_rank(void **state)
{
    rsd_comm *comm;

    (void)state;
    setenv("RESHARD_MPI", "none", 1);
    assert_int_equal(rsd_comm_create_launched(&comm, NULL), RSD_OK);
    assert_int_equal(rsd_comm_size(comm), 1);
    rsd_comm_free(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_that_nobody_launched_is_alone),
        cmocka_unit_test(each_launcher_has_its_library),
        cmocka_unit_test(a_single_rank_needs_no_mpi),
        cmocka_unit_test(the_variable_of_the_user_decides),
        cmocka_unit_test(tasks_that_cannot_find_each_other_are_told),
        cmocka_unit_test(without_a_launcher_the_comm_is_one_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
