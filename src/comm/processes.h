/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the comm whose ranks are processes: comm_processes.c has the operations,
 * processes_wire.c sends and waits, processes_arrive.c takes what comes, processes_memory.c has
 * memory that ranks share, processes_meet.c how ranks find each other.
 *
 * Any two ranks are joined by a stream socket, their wire: a Unix socket within a machine,
 * otherwise what the caller's link made. Short messages go over it as they are. A long one is
 * offered first; when the receiver asks for it, it either reads the sender's memory or has the
 * bytes sent.
 *
 * One lock guards everything that the comms split from one share. A thread that waits releases it;
 * of several that wait, one watches the sockets and the others wait for it. */
#ifndef RSI_PROCESSES_H
#define RSI_PROCESSES_H

#include "base/error.h"
#include "base/free_list.h"
#include "comm/mailbox.h"
#include "comm/shared_file.h"

#include <reshard/reshard_plugin.h>

#include <pthread.h>
#include <sys/types.h>

#define RSI_FRAME_FDS 4 /* descriptors on their way to one rank that wait for their frames */

typedef enum rsi_frame_kind {
    RSI_FRAME_MAIL = 1, /* a short message; its bytes follow */
    RSI_FRAME_OFFER,    /* a long one: `number` is the sender's, `at` the address of its bytes */
    RSI_FRAME_WANT,     /* answer: send the bytes of `number`; `at` is the receiver's number */
    RSI_FRAME_PART,     /* `bytes` of the receiver's `number` follow */
    RSI_FRAME_LAST,     /* all of them have been sent */
    RSI_FRAME_DONE,     /* answer: the bytes of `number` have been read */
    RSI_FRAME_SHARE,    /* memory of alloc `number`; `at`: a descriptor comes with it */
    RSI_FRAME_LEFT,     /* the rank has closed its end of the group */
    RSI_FRAME_STOP      /* an rsd_error follows */
} rsi_frame_kind;

/* Precedes everything on a wire. */
typedef struct rsi_frame {
    uint32_t kind;
    int32_t  tag;
    uint64_t group, bytes, number, at;
} rsi_frame;

/* A frame that waits for room in the socket. */
typedef struct rsi_parcel {
    struct rsi_parcel *next;
    rsi_frame          head;
    size_t             bytes, sent; /* of `data`; of head and data together */
    int                fd;          /* goes along, then it is closed; -1: none */
    char               data[];
} rsi_parcel;

/* The connection to one rank. */
typedef struct rsi_wire {
    int   fd;     /* -1: this rank itself, or closed */
    int   pid_fd; /* readable once the process has ended; -1: unknown */
    pid_t pid;    /* 0: on another machine, or in an unrelated process namespace */
    bool  near;   /* a Unix socket: descriptors can be passed */
    bool  reads;  /* its memory can be read with process_vm_readv */
    bool  left;   /* it has closed its end of the first group */
    bool  gone;   /* nothing more will come */
    bool  deaf;   /* it takes nothing more */
    bool  armed;  /* the socket is watched for room */
    bool  told;   /* that the comm is broken */

    /* going out */
    rsi_parcel   *first, **end;
    rsi_mail_list offered; /* sends that the other side has not asked for */
    rsi_mail_list streams; /* sends whose bytes are going out */
    rsi_frame     part;    /* the frame with bytes of a stream that is going out, */
    size_t        part_sent;
    bool          in_part; /* if there is one, */
    rsi_mail     *part_of; /* and whose bytes they are; NULL: it was withdrawn, zeros go out */

    /* coming in */
    rsi_frame     head;
    size_t        have;     /* bytes of `head` so far */
    size_t        rest;     /* bytes that follow it and have not come */
    char         *dst;      /* where they go; NULL: nowhere */
    rsi_mail     *into;     /* whose they are; NULL: nobody's */
    rsi_mail_list filling;  /* receives whose bytes are coming */
    rsi_mail_list settling; /* receives that were read, until the sender is known to be sound */
    rsd_error     heard;
    int           fds[RSI_FRAME_FDS], nfds;
} rsi_wire;

typedef struct rsi_house rsi_house;

/* One rank's end of a comm. */
typedef struct rsi_group {
    struct rsi_group *next; /* in the house */
    rsi_house        *house;
    uint64_t          id;
    int32_t           rank, size;
    int32_t          *ranks;          /* [size] in the first group */
    bool             *left;           /* [size] has closed its end */
    bool              said_left;      /* as this one has said */
    rsi_mail_list     asked, waiting; /* receives, messages */
    uint64_t          splits;         /* so far: the same number on all ranks */
    rsi_shared_memory memory;
} rsi_group;

/* What all comms split from one have in common. */
struct rsi_house {
    pthread_mutex_t lock;
    pthread_cond_t  change;   /* something came; for threads that do not watch the sockets */
    bool            watching; /* a thread does */
    pid_t           pid;      /* a forked child can't use it */
    int32_t         rank, size;
    int             poll_fd, wake_fd;
    rsi_wire       *wire; /* [size] */
    rsi_group      *groups;
    int32_t         ends;    /* groups */
    uint64_t        numbers; /* of messages so far */
    bool            broken;
    rsd_error       why;
    rsi_free_list   spares; /* of mail without data */
    char           *buffer; /* for reading */
    rsd_meeting     meeting;
    uint64_t        cookie[2]; /* by which others tell that they read this process's memory */
};

/* ---- processes_wire.c; the lock is held ---- */

#define RSI_WIRE_BUFFER ((size_t)1 << 16)

/* Records of messages; `room` for bytes behind them. NULL: no memory. */
rsi_mail  *rsi_house_mail(rsi_house *h, size_t room);
void       rsi_house_drop(rsi_house *h, rsi_mail *m);
rsi_group *rsi_house_group(const rsi_house *h, uint64_t id);

/* Sends a frame and `bytes` bytes, or queues what the socket does not take. `fd` goes along and is
 * closed here; -1: none. False: no memory. */
bool rsi_wire_send(rsi_house *h, int32_t to, const rsi_frame *head, const void *data, size_t bytes,
                   int fd);
/* Sends what is queued, as far as the socket takes it. */
void rsi_wire_flush(rsi_house *h, int32_t to);
bool rsi_wire_empty(const rsi_wire *w);
void rsi_wire_close(rsi_house *h, int32_t rank);
/* Forgets a request, wherever it is. False: its bytes are still needed. */
bool rsi_wire_withdraw(rsi_house *h, rsi_mail *m);

/* Tells a rank why the house is broken, once. */
void rsi_wire_tell(rsi_house *h, int32_t to);
/* Breaks the house for this rank and tells all others; only the first time. */
void rsi_house_break(rsi_house *h, const rsd_error *why);
void rsi_house_no_memory(rsi_house *h, size_t bytes);
/* Nothing more comes from this rank; `reason` NULL: it ended. */
void rsi_wire_lost(rsi_house *h, int32_t rank, const char *reason);
/* Handles what has come, waiting for it until `until` (ms of the clock). */
void rsi_house_pump(rsi_house *h, int64_t until);
/* Makes a waiting pump return. */
void rsi_house_wake(rsi_house *h);
/* Adds a descriptor to those that are watched. */
bool rsi_house_watch(rsi_house *h, int fd, int32_t rank, bool is_pid);

/* ---- processes_arrive.c; the lock is held ---- */

/* The receive `m` has met the offer of a long message. */
void rsi_wire_pull(rsi_house *h, int32_t from, rsi_mail *m, uint64_t number, uint64_t at,
                   size_t bytes);
/* Reads what has come. False: there is more. */
bool rsi_wire_read(rsi_house *h, int32_t from);

/* ---- processes_memory.c ---- */

rsd_err rsi_processes_alloc(void *self, size_t bytes, void **out, rsd_error *err);
void    rsi_processes_dealloc(void *self, void *data);
rsd_err rsi_processes_expose(void *self, const void *data, size_t bytes, rsd_exposed *out,
                             rsd_error *err);
rsd_err rsi_processes_reach(void *self, int32_t owner, const rsd_exposed *what, void **out,
                            rsd_error *err);
/* A frame of kind SHARE came. `fd` -1: the rank has none. */
void rsi_share_came(rsi_group *g, int32_t from, const rsi_frame *head, int fd);

/* ---- comm_processes.c ---- */

/* RSD_OK, or the error of a broken house; the lock is held. */
rsd_err rsi_house_usable(const rsi_house *h, rsd_error *err);
/* Takes the lock; not after an error: the house is broken, or this is a forked child. */
rsd_err rsi_house_enter(rsi_house *h, rsd_error *err);
/* A new end; `ranks` is copied. NULL: no memory. */
rsi_group *rsi_group_open(rsi_house *h, uint64_t id, int32_t rank, int32_t n, const int32_t *ranks);
/* Frees a house without groups. */
void rsi_house_free(rsi_house *h);

extern const rsd_comm_ops rsi_processes_ops;

#endif
