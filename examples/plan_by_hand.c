/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank sends what to which when a [4096, 14336] matrix goes from row shards on 8 ranks to
 * column shards on 4 of them. */
#include <reshard/reshard_live.h>
#include <stdio.h>

int main(void)
{
    const int64_t shape[] = { 4096, 14336 };
    rsd_rules    *rules[2] = { NULL, NULL };
    rsd_layout   *layout[2] = { NULL, NULL };
    rsd_plan     *plan = NULL;
    rsd_error     err;
    char          text[4096];
    rsd_err       rc;

    rc = rsd_rules_parse("mesh dp=8; * shard(0)@dp", &rules[0], &err);
    if (!rc)
        rc = rsd_rules_parse("mesh tp=4 ranks=0,2,4,6; * shard(1)@tp", &rules[1], &err);
    for (int i = 0; i < 2 && !rc; i++)
        rc = rsd_rules_layout(rules[i], "w1.weight", RSD_BF16, 2, shape, &layout[i], &err);
    if (!rc)
        rc = rsd_plan_create(1, (const rsd_layout *const *)&layout[0],
                             (const rsd_layout *const *)&layout[1], 2, &plan, &err);
    if (!rc) {
        rsd_plan_text(plan, text, sizeof(text));
        fputs(text, stdout);
    }
    if (rc)
        fprintf(stderr, "plan_by_hand: %s\n", err.msg);
    rsd_plan_free(plan);
    for (int i = 0; i < 2; i++) {
        rsd_layout_free(layout[i]);
        rsd_rules_free(rules[i]);
    }
    return rc ? 1 : 0;
}
