/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that all ranks run the same plan. */
#include "base/mem.h"
#include "comm/facts.h"
#include "live/exchange.h"

#include <stdio.h>

const char *rsi_exchange_name(const rsi_exchange *x, size_t tensor, char *buf, size_t cap)
{
    if (x->name && x->name[tensor])
        snprintf(buf, cap, "tensor \"%s\"", x->name[tensor]);
    else
        snprintf(buf, cap, "tensor %zu", tensor);
    return buf;
}

typedef struct told {
    const rsi_exchange *x;
    uint64_t (*layouts)[2]; /* per class: digests of its source and target, slow to make */
} told;

static void tell_plan(rsi_facts *f, const void *arg)
{
    const told     *all = arg;
    const rsd_plan *plan = all->x->plan;
    char            name[sizeof(f->about)];

    rsi_fact_number(f, "the number of tensors", plan->n);
    for (size_t t = 0; t < plan->n; t++) {
        const rsd_layout *l = plan->src[t];
        const uint64_t   *layouts = all->layouts[plan->class_of[t]];

        if (f->in_words)
            rsi_facts_about(f, "%s", rsi_exchange_name(all->x, t, name, sizeof(name)));
        rsi_fact_word(f, "dtype", rsd_dtype_name(l->dtype));
        rsi_fact_shape(f, "shape", l->ndim, l->shape);
        rsi_fact_digest(f, "source layout", layouts[0]);
        rsi_fact_digest(f, "target layout", layouts[1]);
    }
}

rsd_err rsi_exchange_compare(rsi_exchange *x, rsd_err rc, rsd_error *err)
{
    const rsd_plan *plan = x->plan;
    told            all = { x, rsi_calloc(plan->nclasses, sizeof(all.layouts[0])) };

    if (!rc && !all.layouts)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to compare %zu tensors", plan->n);
    for (size_t i = 0; i < plan->nclasses && !rc; i++) {
        all.layouts[i][0] = rsi_layout_digest(plan->class[i] -> src.layout);
        all.layouts[i][1] = rsi_layout_digest(plan->class[i] -> dst.layout);
    }
    rc = rsi_same_facts(x->comm, tell_plan, &all, rc, err);
    rsi_free(all.layouts);
    return rc;
}
