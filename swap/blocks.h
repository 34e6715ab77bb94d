/*
 * How the canonical vector of an optimizer's state is cut into blocks on disk
 * (docs/design/engine.md#state-on-disk). A block is laid out as [master][m][v], master in f32 and
 * moments as the run keeps them, each part rounded up to whole sectors: one read and one write per
 * block and step. Mostly all blocks have as many elements, but the last. Where Muon updates whole
 * matrices, blocks have the sizes of a list, so that none ends inside of a matrix; what they have
 * of v leaves matrices out. Pure; any thread.
 */
#ifndef SWAP_BLOCKS_H
#define SWAP_BLOCKS_H

#include "swap/state.h"
#include "swap/store.h"

/* Where a block begins: in the vector, in v, and in a generation in bytes. */
typedef struct swap_block {
    uint64_t first, second, offset;
} swap_block;

typedef struct swap_blocks {
    uint64_t extent; /* elements of the vector */
    uint64_t each; /* elements of a block; a multiple of swap_block_align(); 0: there is no disk */
    atom_dtype moments;
    const swap_block *list; /* borrowed: n blocks, and behind them where the last one ends; NULL:
                               each block has `each` elements, in all parts */
    uint64_t n, largest;    /* of the list: how many, and the bytes of the largest */
} swap_blocks;
enum { SWAP_BLOCK_ELEMENTS = 1 << 20 };

/* Elements of whose parts each is whole sectors. */
static inline uint64_t swap_block_align(atom_dtype moments)
{
    return STORE_ALIGN / atom_dtype_bytes(moments);
}

static inline uint64_t swap_blocks_n(swap_blocks b)
{
    return b.list ? b.n : b.each ? (b.extent + b.each - 1) / b.each : 0;
}
/* Of block i: its first element, and where its part of v begins there. */
static inline uint64_t swap_block_first(swap_blocks b, uint64_t i)
{
    return b.list ? b.list[i].first : i * b.each;
}
static inline uint64_t swap_block_second(swap_blocks b, uint64_t i)
{
    return b.list ? b.list[i].second : i * b.each;
}
static inline uint64_t swap_block_elements(swap_blocks b, uint64_t i)
{
    if (b.list)
        return b.list[i + 1].first - b.list[i].first;
    return b.extent - i * b.each < b.each ? b.extent - i * b.each : b.each;
}
/* Those of them that have a second moment. */
static inline uint64_t swap_block_seconds(swap_blocks b, uint64_t i)
{
    return b.list ? b.list[i + 1].second - b.list[i].second : swap_block_elements(b, i);
}
/* Bytes of [master][m][v] of so many elements, and so many of v. */
static inline uint64_t swap_block_size(atom_dtype moments, uint64_t elements, uint64_t seconds)
{
    uint64_t align = swap_block_align(moments);
    return (elements + align - 1) / align * align * (4 + atom_dtype_bytes(moments)) +
           (seconds + align - 1) / align * align * atom_dtype_bytes(moments);
}
/* Elements of the room of a part of block i; of master and m it is the same. */
static inline uint64_t swap_block_part(swap_blocks b, uint64_t i, swap_state part)
{
    uint64_t n = part == SWAP_STATE_V ? swap_block_seconds(b, i) : swap_block_elements(b, i);
    uint64_t align = swap_block_align(b.moments);
    return (n + align - 1) / align * align;
}
/* Where that part begins in block i, bytes. */
static inline uint64_t swap_block_part_offset(swap_blocks b, uint64_t i, swap_state part)
{
    return swap_state_offset(part, b.moments, swap_block_part(b, i, SWAP_STATE_MASTER));
}
static inline uint64_t swap_block_bytes(swap_blocks b, uint64_t i)
{
    return swap_block_size(b.moments, swap_block_elements(b, i), swap_block_seconds(b, i));
}
/* Of a slot that any of them fits in. */
static inline uint64_t swap_block_room(swap_blocks b)
{
    return b.list ? b.largest : swap_block_bytes(b, 0);
}
/* Of block i in a generation; blocks of `each` elements are whole before the last. */
static inline uint64_t swap_block_offset(swap_blocks b, uint64_t i)
{
    return b.list ? b.list[i].offset : i * b.each * atom_state_bytes(b.moments);
}
/* Bytes of a generation. */
static inline uint64_t swap_blocks_bytes(swap_blocks b)
{
    uint64_t n = swap_blocks_n(b);
    return n ? swap_block_offset(b, n - 1) + swap_block_bytes(b, n - 1) : 0;
}

/* The first block that begins at that element or behind it; swap_blocks_n() where none does. */
static inline uint64_t swap_block_from(swap_blocks b, uint64_t element)
{
    uint64_t low = 0, high = b.n;
    if (!b.list)
        return (element + b.each - 1) / b.each;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (b.list[middle].first < element)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
/* The block that has that element. */
static inline uint64_t swap_block_of(swap_blocks b, uint64_t element)
{
    return b.list ? swap_block_from(b, element + 1) - 1 : element / b.each;
}

#endif
