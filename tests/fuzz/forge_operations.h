/*
 * The operations of a script of gossip_signed, by number: what the fuzzer draws and what seeds.c
 * writes. Each is followed by the draws that gossip_signed.c says.
 */
#ifndef TESTS_FUZZ_FORGE_OPERATIONS_H
#define TESTS_FUZZ_FORGE_OPERATIONS_H

typedef enum forge_operation {
    FORGE_PASS,   /* time: a quarter of a second, 1 + so often */
    FORGE_JUMP,   /* time: 2 to the power of so many ms at once */
    FORGE_LOSE,   /* messages of a kind are lost from now on */
    FORGE_LINK,   /* up, down, or its end is proven to lie: which, whose */
    FORGE_FAULT,  /* forge_fault, then what it needs */
    FORGE_DEPART, /* a host leaves, or the owner begins anew */
    FORGE_OFFER,  /* a chain, and a state at its end */
    FORGE_INVENT, /* a message that is seldom said */
    FORGE_INVENT_TOO,
    FORGE_AGAIN,        /* what came last, changed once more */
    FORGE_HOLD,         /* the next message of a kind is held back, changed and delivered */
    FORGE_RESTART = 14, /* a host comes back with another memory */
    FORGE_OFFER_TOO,
    FORGE_OPERATIONS_N
} forge_operation;

typedef enum forge_fault {
    FORGE_VERDICT,   /* audits end with this verdict: 0 what the sum says */
    FORGE_WITHHOLDS, /* bits of hosts */
    FORGE_LIES,      /* bits of hosts */
    FORGE_FAULTS_N
} forge_fault;

/* What FORGE_INVENT makes. */
typedef enum forge_invention {
    FORGE_SAYS_LEAVE,
    FORGE_SAYS_EVIDENCE,
    FORGE_SAYS_ACCUSE,
    FORGE_SAYS_LINEAGE,
    FORGE_SAYS_REFUSE,
    FORGE_SAYS_WITHHELD,
    FORGE_SAYS_JOIN,
    FORGE_INVENTIONS_N
} forge_invention;

#endif
