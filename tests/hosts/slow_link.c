/* SPDX-License-Identifier: Apache-2.0 */
/* A bad cable between two network devices of tests/hosts/run:
 *
 *     slow_link DEVICE DEVICE
 *
 * Every frame that comes in through one leaves through the other 5 ms later, or never: one in a
 * hundred is lost. Prints the process that does so, once it does, and leaves it running until it is
 * killed. Kernels with netem could do the same, but many have none. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { DELAY_NS = 5000000, LOST_OF = 100, FRAME_MAX = 1 << 17, QUEUE_MAX = 1 << 16 };

typedef struct frame {
    struct frame *next;
    int64_t       due; /* ns */
    size_t        len;
    int           to;     /* socket */
    char          data[]; /* virtio_net_hdr, then the frame */
} frame;

static frame   *first, **end = &first;
static size_t   queued;
static uint64_t dice = 1; /* the same frames are lost in every run */

static int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Sees what comes in through the device, not what goes out. The header before each frame carries
 * checksums that are still to be computed and segments still to be cut. */
static int open_device(const char *name)
{
    struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
    const int          on = 1, bytes = 8 << 20;
    int                fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    at.sll_ifindex = (int)if_nametoindex(name);
    if (fd < 0 || at.sll_ifindex == 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) < 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) < 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0) {
        fprintf(stderr, "slow_link: device %s: %s\n", name, strerror(errno));
        exit(1);
    }
    return fd;
}

static bool lost(void)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (dice >> 33) % LOST_OF == 0;
}

/* Takes what has come in at `from`. */
static void take_in(int from, int to)
{
    static char buf[FRAME_MAX];
    ssize_t     len;

    while ((len = recv(from, buf, sizeof(buf), 0)) > 0) {
        frame *f = lost() || queued == QUEUE_MAX ? NULL : malloc(sizeof(*f) + (size_t)len);

        if (!f)
            continue;
        *f = (frame){ .due = now() + DELAY_NS, .len = (size_t)len, .to = to };
        memcpy(f->data, buf, (size_t)len);
        *end = f;
        end = &f->next;
        queued++;
    }
}

static void send_due(void)
{
    while (first && first->due <= now()) {
        frame *f = first;

        (void)!send(f->to, f->data, f->len, 0); /* a device that is down loses it */
        first = f->next;
        if (!first)
            end = &first;
        queued--;
        free(f);
    }
}

int main(int argc, char **argv)
{
    struct pollfd port[2];
    pid_t         pid;

    if (argc != 3)
        return 2;
    for (int i = 0; i < 2; i++)
        port[i] = (struct pollfd){ .fd = open_device(argv[1 + i]), .events = POLLIN };
    pid = fork();
    if (pid != 0)
        return pid < 0 || printf("%d\n", (int)pid) < 0;
    close(1); /* whoever reads the line waits for its end */
    for (;;) {
        const int64_t         left = first ? first->due - now() : 0;
        const struct timespec t = { .tv_nsec = left > 0 ? left : 0 };

        if (ppoll(port, 2, first ? &t : NULL, NULL) < 0)
            return 1;
        for (int i = 0; i < 2; i++)
            take_in(port[i].fd, port[1 - i].fd);
        send_due();
    }
}
