/* SPDX-License-Identifier: Apache-2.0 */
/* reshard verify: checks a checkpoint for damage. The library does the work; this file names the
 * damage. */
#include "cli.h"

#include <inttypes.h>
#include <string.h>

typedef struct report {
    bool     json;
    json_out out;
    progress bar;
} report;

static void damage(void *arg, const rsd_error *what)
{
    report *r = arg;

    progress_end(&r->bar); /* each damage gets its own line */
    if (r->json) {
        json_open_object(&r->out, NULL);
        json_text(&r->out, "error", rsd_err_name((rsd_err)what->code));
        json_text(&r->out, "message", what->msg);
        json_close(&r->out);
        return;
    }
    printf("damage: ");
    print_safe(stdout, what->msg);
    printf("\n");
}

static int count_bytes(const args *a, rsd_ckpt *ckpt, uint64_t *out)
{
    rsd_tensor_info info = { .size = sizeof(info) };
    rsd_error       err = { .msg = "" };
    uint64_t        bytes = 0;

    for (size_t t = 0; t < rsd_ckpt_tensors(ckpt); t++) {
        if (rsd_ckpt_tensor(ckpt, t, &info, &err))
            return fail(a, &err);
        bytes += (uint64_t)info.bytes;
    }
    *out = bytes;
    return EXIT_DONE;
}

/* Safetensors have no checksums of their own, and neither has the legacy form of torch.save. */
static bool has_checksums(const rsd_ckpt *ckpt)
{
    return rsd_ckpt_has_checksums(ckpt) || (rsd_ckpt_format(ckpt) != RSD_FORMAT_SAFETENSORS &&
                                            strncmp(rsd_ckpt_kind(ckpt), "legacy", 6) != 0);
}

/* Attributes of the metadata that this version does not know. */
static void say_skipped(rsd_ckpt *ckpt, report *r, bool quiet)
{
    const char *name = rsd_ckpt_skipped(ckpt, 0);

    if (!name)
        return;
    if (r->json)
        json_open_array(&r->out, "skipped");
    for (size_t i = 0; (name = rsd_ckpt_skipped(ckpt, i)) != NULL; i++) {
        if (r->json) {
            json_text(&r->out, NULL, name);
        } else if (!quiet) {
            printf("skipped: unknown attribute ");
            print_safe(stdout, name);
            printf("\n");
        }
    }
    if (r->json)
        json_close(&r->out);
}

static void say_end(const args *a, rsd_ckpt *ckpt, report *r, uint64_t bytes, size_t damages)
{
    const size_t tensors = rsd_ckpt_tensors(ckpt), objects = rsd_ckpt_objects(ckpt);
    const char  *note = "";
    char         size[32];

    if (r->json) {
        json_close(&r->out);
        say_skipped(ckpt, r, false);
        notes_json(&r->out, ckpt);
        health_json(&r->out, ckpt);
        json_bool(&r->out, "ok", damages == 0);
        json_close(&r->out);
        return;
    }
    say_skipped(ckpt, r, args_has(a, "quiet"));
    if (!args_has(a, "quiet"))
        notes_print(stdout, ckpt);
    if (args_has(a, "quick"))
        note = "; no data were read";
    else if (!has_checksums(ckpt))
        note = "; no checksums: changes can't be detected; `reshard manifest` adds checksums";
    if (damages) {
        printf("%zu damage%s\n", damages, plural(damages));
        health_print(stdout, ckpt);
    } else if (!args_has(a, "quiet"))
        printf("ok: %s, %zu tensor%s, %s, %zu object%s%s\n", format_name(rsd_ckpt_format(ckpt)),
               tensors, plural(tensors), size_text(bytes, size, sizeof(size)), objects,
               plural(objects), note);
}

static int run(const args *a)
{
    report              r = { .json = args_has(a, "json"), .out = { .out = stdout } };
    const rsd_read_opts opts = { .size = sizeof(opts),
                                 .threads = args_number(a, "threads", 0),
                                 .quick = args_has(a, "quick"),
                                 .on_progress = progress_step,
                                 .arg = &r.bar };
    rsd_error           err = { .msg = "" };
    uint64_t            bytes = 0;
    size_t              damages = 0;
    rsd_err             rc;
    rsd_ckpt           *ckpt;
    int                 code = source_salvage(a, a->operand[0], &ckpt);

    if (code)
        return code;
    code = count_bytes(a, ckpt, &bytes);
    if (!code && r.json) {
        json_open_object(&r.out, NULL);
        json_text(&r.out, "format", format_name(rsd_ckpt_format(ckpt)));
        json_text(&r.out, "path", a->operand[0]);
        json_bool(&r.out, "quick", args_has(a, "quick"));
        json_uint(&r.out, "tensors", rsd_ckpt_tensors(ckpt));
        json_uint(&r.out, "bytes", bytes);
        json_bool(&r.out, "checksums", has_checksums(ckpt));
        json_open_array(&r.out, "damages");
    }
    if (!code) {
        progress_begin(&r.bar, a, "verifying");
        rc = rsd_ckpt_verify(ckpt, &opts, damage, &r, &damages, &err);
        progress_end(&r.bar);
        code = rc ? fail(a, &err) : EXIT_DONE;
    }
    if (!code) {
        say_end(a, ckpt, &r, bytes, damages);
        code = damages ? EXIT_NO : EXIT_DONE;
    }
    rsd_ckpt_close(ckpt);
    return code;
}

static const option_spec options[] = {
    { "quick", 0, OPT_FLAG, NULL,
      "read no data; check structure, sizes, coverage, overlaps and the checksum file itself" },
    { "threads", 'j', OPT_COUNT, "N", "number of threads; default: all processors" },
    OPTION_JSON,
    OPTIONS_PROGRESS,
    { 0 },
};

const command cmd_verify = {
    .name = "verify",
    .line = "check a checkpoint for damage",
    .operands = "CKPT",
    .min = 1,
    .max = 1,
    .options = options,
    .text =
        "Checks that all files exist with the right sizes, that the chunks of each tensor tile it, "
        "that every item matches the metadata, and every checksum: the CRC32s, which PyTorch "
        "writes but never checks, and those of the checksum file. Damage is reported by file, "
        "tensor and position.\n"
        "\n"
        "Missing or truncated files don't hide the rest: the tensors and objects that are damaged "
        "or gone are listed at the end, and `reshard convert --salvage` rescues the others.\n"
        "\n"
        "Exits with 0 if there is no damage, with 1 if there is, with 4 if the metadata themselves "
        "can't be read.",
    .examples = "# after a download\n"
                "reshard verify step-1000\n",
    .run = run,
};
