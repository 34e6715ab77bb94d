"""SWARM's rebalancing under churn (section 4.4): what tools/paper swarm adds to its page."""
import heapq
import random

HOURS, PEERS, STAGES, SEEDS = 32, 400, 4, 10
# Table 5: percent of the optimum, overall, in the first hour and in the last.
TABLE_5 = [("none", 82.7, 99.0, 45.4), ("T = 300", 95.8, 99.4, 88.9), ("T = 60", 97.6, 99.8, 91.7)]
WAYS = [("none", 0, False), ("T = 300", 300, False), ("T = 60", 60, False), ("newcomers to the smallest stage", 0, True),
        ("both, T = 300", 300, True)]


def changes(lifetime, until, seed):
    """(second, +1 or -1) of peers that live so many seconds on average; those gone before `until` are replaced."""
    draw, out, queue = random.Random(seed), [], []
    for _ in range(PEERS):
        heapq.heappush(queue, draw.expovariate(1 / lifetime))
    while queue[0] < 3600 * HOURS:
        left = heapq.heappop(queue)
        came = left + draw.expovariate(1 / 600)  # a new one takes ten minutes
        out.append((left, -1))
        heapq.heappush(queue, came + draw.expovariate(1 / lifetime) if left < until else 3600 * HOURS)
        out += [(came, 1)] if left < until else []
    return sorted(out)


def relative(trace, period, placed, seed):
    """Throughput over that of stages of equal size: the smallest stage's share, in percent, overall and by the two hours. As
    theirs: who leaves is drawn from stages, not from peers; and each period, one peer moves from the largest to the smallest."""
    draw, size = random.Random(seed), [PEERS // STAGES] * STAGES
    spans = [(0, 3600 * HOURS), (0, 3600), (3600 * (HOURS - 1), 3600 * HOURS)]
    done, best = [0.0] * 3, [0.0] * 3
    moves = [(period * (i + 1), 0) for i in range(3600 * HOURS // period)] if period else []
    now = 0.0
    for at, change in heapq.merge(trace, moves):
        until = min(at, 3600 * HOURS)
        for i, (begin, end) in enumerate(spans):
            seconds = max(0.0, min(until, end) - max(now, begin))
            done[i] += seconds * min(size)
            best[i] += seconds * (sum(size) // STAGES)
        now = until
        if change == 0:
            if max(size) - min(size) > 1:
                size[size.index(max(size))] -= 1
                size[size.index(min(size))] += 1
        elif change < 0:
            size[draw.choice([i for i in range(STAGES) if size[i] > 0])] -= 1
        else:
            size[size.index(min(size)) if placed else draw.randrange(STAGES)] += 1
    return [100 * d / b for d, b in zip(done, best)]


def mean(lifetime, until, period, placed):
    rows = [relative(changes(lifetime, until, seed), period, placed, 1000 + seed) for seed in range(SEEDS)]
    return [sum(column) / SEEDS for column in zip(*rows)]


def lifetime_of(overall, until):
    """Seconds that peers live, so that without rebalancing as much of the optimum is left as Table 5 says."""
    low, high = 1800.0, 30 * 86400.0
    for _ in range(14):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if mean(middle, until, 0, False)[0] > overall else (middle, high)
    return (low * high) ** 0.5


TEXT = """
## Their Table 5: rebalancing under churn, simulated

32 hours of {peers} peers in {stages} stages of one speed, of which the smallest decides. As in section 4.4, each peer that leaves
is taken from a stage drawn at random; {seeds} seeds. Theirs replays how many peers their own run had, which the paper shows only in
a picture, so the trace is drawn: lives are exponential, with the one mean for which no rebalancing keeps as much of the optimum
as theirs ({steady:.0f} hours where each peer is replaced after some ten minutes; {short:.0f} hours where from hour {end} on nobody is). Moving, by their
algorithm 2, takes one peer from the largest stage to the smallest in each period, at once. Percent of the optimum: overall,
first hour, last hour.

| | theirs | always replaced | not replaced from hour {end} on |
|---|---|---|---|
{rows}
- The first row was made to fit overall. Its last hour then says which trace is nearer to theirs: a deficit by chance grows with the
  square root of time, which does not lead from 83 % overall to 45 % in the end; it does where peers become fewer.
- Moving one peer in five minutes does better here than theirs (99 % against 96 %). A peer moves in no time here, and peers leave
  one by one; preemptible instances leave in waves, and a moved one must download its stage first.
- Not in the paper: to send newcomers to the smallest stage does as much as moving while there are newcomers, and moves nobody.
  Where nobody comes any more, it cannot help; both together do what moving does.
"""


def section():
    """The section of the page."""
    end = 24
    until = [3600 * HOURS, 3600 * end]
    life = [lifetime_of(TABLE_5[0][1], u) for u in until]
    theirs = {name: " / ".join(f"{x:.1f}" for x in rest) for name, *rest in TABLE_5}
    rows = ""
    for name, period, placed in WAYS:
        each = [" / ".join(f"{x:.1f}" for x in mean(life[i], until[i], period, placed)) for i in range(2)]
        rows += f"| {name} | {theirs.get(name, '')} | {each[0]} | {each[1]} |\n"
    return TEXT.format(peers=PEERS, stages=STAGES, seeds=SEEDS, end=end, steady=life[0] / 3600, short=life[1] / 3600, rows=rows)
