// What both passes share. The constants before this are of one network: see resident.py.
//
// A product is (rows of weights) × (samples). Its sum is cut into blocks of 32, and warp w takes blocks w,
// w + WARPS, …: every value of the state is read once by a multiprocessor. Which of a block's elements meets which
// is free as long as weights and state agree, so a lane takes 8 that lie side by side, in one read.
//
// What the blocks tell each other goes over a board: two sides, used in turns, each [block of 32][sample][32], every
// vector padded to whole blocks, so that a warp reads 512 bytes on end. Before a side is written again, everybody has
// read it: the writer has waited for all who wrote the other side after reading this one.

constexpr int WARPS = THREADS / 32;
constexpr int NONE = 0, PAPER = 1, RECURSIVE = 2, ADDITIVE = 3, SCALING = 4, BOUNDED = 5;
constexpr bool HYPER = KIND != NONE;
constexpr bool CARRIED = KIND == RECURSIVE || KIND == BOUNDED;  // a, beside c
constexpr bool GATED = KIND == PAPER || CARRIED;
constexpr int SGZ = 2 * HP + ZP + 8;
constexpr int Z_ROWS = 16;  // of a block

__device__ constexpr int blocks_of(int k) { return (k + 31) / 32; }
__device__ constexpr int tiles_of(int rows) { return (rows + 15) / 16; }
// Units apart so that the writes of a product's sum hardly share a bank; its reads then lie side by side.
__device__ constexpr int pitch(int each) { return each % 8 >= 3 && each % 8 <= 5 ? each : (each + 3) / 8 * 8 + 4; }

constexpr int HB = blocks_of(HP), ZB = blocks_of(ZP);

// Where element n of the vector that begins at `block` lies on a side, for sample b.
__device__ __forceinline__ int place(int block, int n, int b) {
    return ((block + n / 32) * SAMPLES + b) * 32 + n % 32;
}

__device__ __forceinline__ float get(const float* from, int64 at) { return from[at]; }
__device__ __forceinline__ float get(const bf16* from, int64 at) { return widened(from[at]); }
__device__ __forceinline__ void put(float* to, int64 at, float x) { to[at] = x; }
__device__ __forceinline__ void put(bf16* to, int64 at, float x) { to[at] = narrowed(x); }

// Weights lie in shared memory as [block of 32][row][32].
struct Kept {
    unsigned char* to;
    int rows, blocks;
};

__device__ void clear(Kept kept) {
    for (int at = thread_index() * 16; at < kept.blocks * kept.rows * 64; at += THREADS * 16) {
        *reinterpret_cast<Words*>(kept.to + at) = {0, 0, 0, 0};
    }
    sync();
}

// Rows `first`… of a weight with `limit` of them, `length` elements each, as rows `row`…, blocks `block`….
__device__ void keep_rows(
    Kept kept, int row, int block, const bf16* from, int stride, int first, int each, int limit, int length
) {
    for (int at = thread_index(); at < blocks_of(length) * each * 4; at += THREADS) {
        const int j = at / 4 % each, k = at / 4 / each * 32 + at % 4 * 8, here = block + k / 32;
        if (first + j >= limit || k >= length) continue;
        *reinterpret_cast<Words*>(kept.to + (here * kept.rows + row + j) * 64 + at % 4 * 16) =
            *reinterpret_cast<const Words*>(from + int64(first + j) * stride + k);
    }
}

// The same of a weight's columns: its `length` rows are the elements of the sum.
__device__ void keep_columns(
    Kept kept, int row, int block, const bf16* from, int stride, int first, int each, int limit, int length
) {
    const int begin = first / 8 * 8, reads = (first + each - begin + 7) / 8;
    for (int at = thread_index(); at < length * reads; at += THREADS) {
        const int k = at / reads, column = begin + at % reads * 8, here = block + k / 32;
        if (column >= limit) continue;
        const Words value = *reinterpret_cast<const Words*>(from + int64(k) * stride + column);
        const unsigned words[4] = {value.x, value.y, value.z, value.w};
        bf16* to = reinterpret_cast<bf16*>(kept.to + (here * kept.rows + row) * 64) + k % 32;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int j = column + e - first;
            if (j >= 0 && j < each) to[j * 32] = bf16(words[e / 2] >> (e % 2 * 16));
        }
    }
}

// An RHN has a set of weights for every inner step. Those that have no room stay in global memory, [block][set], as
// they would lie in shared memory, and come one after the other into the last place there, each behind the product
// before it.
constexpr bool BROUGHT = KEPT < SETS;
constexpr int PLACES = BROUGHT ? KEPT + 1 : SETS;

template <int BYTES>
__device__ __forceinline__ unsigned char* home(unsigned char* kept, unsigned char* others, int set) {
    if (!BROUGHT || set < KEPT) return kept + set * BYTES;
    return others + (int64(block_index() - Z_BLOCKS) * (SETS - KEPT) + set - KEPT) * BYTES;
}

// A warp brings what it will multiply itself: COUNT blocks of ROWS rows, from where `multiply` begins.
template <int ROWS, int COUNT>
__device__ __forceinline__ void bring(unsigned char* kept, unsigned char* others, int set) {
    constexpr int BYTES = COUNT * ROWS * 64;
    if (!BROUGHT || set < KEPT) return;
    const unsigned char* from = home<BYTES>(kept, others, set);
    unsigned char* to = kept + KEPT * BYTES;
    for (int block = (thread_index() / 32 + block_index()) % WARPS; block < COUNT; block += WARPS) {
        for (int at = thread_index() % 32 * 16; at < ROWS * 64; at += 512) {
            send_for(to + block * ROWS * 64 + at, from + block * ROWS * 64 + at);
        }
    }
}

// Where a set lies that was kept or brought.
template <int BYTES>
__device__ __forceinline__ const unsigned char* ready(const unsigned char* kept, int set) {
    if (!BROUGHT || set < KEPT) return kept + set * BYTES;
    wait_for_sent();
    return kept + KEPT * BYTES;
}

// Weights of ROWS rows times z¹, a constant.
template <int ROWS>
__device__ void first_products(float* to, float* scratch, const unsigned char* weights, const bf16* z) {
    constexpr int SHARES = THREADS / ROWS;
    const int m = thread_index() % ROWS, share = thread_index() / ROWS;
    const bf16* row = reinterpret_cast<const bf16*>(weights) + m * 32;
    float y = 0.0f;
    sync();
    for (int k = share; share < SHARES && k < ZP; k += SHARES) {
        y += widened(row[k / 32 * ROWS * 32 + k % 32]) * widened(z[k]);
    }
    scratch[thread_index()] = y;
    sync();
    if (share == 0) {
        float sum = 0.0f;
        for (int i = 0; i < SHARES; i++) sum += scratch[i * ROWS + m];
        to[m] = sum;
    }
    sync();
}

// The part of a sum over COUNT blocks of x that falls to this warp, for the first tiles of ROWS rows of weights. AHEAD
// reads are under way at once: as a rule all of them, so that their time is paid once. Multiprocessors begin at
// different places, for not all to ask the same part of the L2.
template <int TILES, int ROWS, int COUNT, int AHEAD>
__device__ __forceinline__ void multiply(
    float (&sum)[TILES][COLUMNS][4], const unsigned char* weights, const bf16* x
) {
    constexpr int TURNS = (COUNT + WARPS - 1) / WARPS;
    const int lane = thread_index() % 32, mine = (thread_index() / 32 + block_index()) % WARPS;
    const bf16* from = x + mine * SAMPLES * 32 + lane * 8;
    const unsigned char* at = weights + mine * ROWS * 64 + lane * 16;
    const auto there = [&](int turn) { return (turn + 1) * WARPS <= COUNT || turn * WARPS + mine < COUNT; };
    const auto read = [&](Words (&in)[COLUMNS], int turn) {
#pragma unroll
        for (int column = 0; column < COLUMNS; column++) {
            in[column] = {0, 0, 0, 0};
            if (there(turn) && column * 8 + lane / 4 < SAMPLES) {
                in[column] = load_shared_state(from + turn * WARPS * SAMPLES * 32 + column * 256);
            }
        }
    };
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int column = 0; column < COLUMNS; column++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[tile][column][e] = 0.0f;
    Words in[AHEAD][COLUMNS];
#pragma unroll
    for (int turn = 0; turn < AHEAD && turn < TURNS; turn++) read(in[turn], turn);
    sync_warp();  // or else the compiler puts the later reads behind the first products
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        if (!there(turn)) break;
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const unsigned char* tiles = at + turn * WARPS * ROWS * 64 + tile * 1024;
            const Words low = *reinterpret_cast<const Words*>(tiles);
            const Words high = *reinterpret_cast<const Words*>(tiles + 512);
#pragma unroll
            for (int column = 0; column < COLUMNS; column++) {
                const Words& y = in[turn % AHEAD][column];
                multiply_add(sum[tile][column], low.x, high.x, low.y, high.y, y.x, y.y);
                multiply_add(sum[tile][column], low.z, high.z, low.w, high.w, y.z, y.w);
            }
        }
        if (turn + AHEAD < TURNS) read(in[turn % AHEAD], turn + AHEAD);
    }
}

// The warps' sums side by side, [SLABS][part][sample][EACH], or so many of them that have room, the others added to
// these in order.
template <int TILES, int PARTS, int EACH>
__device__ __forceinline__ void spread(float (&sum)[TILES][COLUMNS][4], float* slabs) {
    const int lane = thread_index() % 32, warp = thread_index() / 32;
    float* slab = slabs + (warp % SLABS) * PARTS * SAMPLES * pitch(EACH) + lane % 4 * 2 * pitch(EACH);
#pragma unroll
    for (int group = WARPS / SLABS - 1; group >= 0; group--) {
        if (warp / SLABS == group) {
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int high = 0; high < 2; high++) {
                    const int m = tile * 16 + high * 8 + lane / 4;
                    float* row = slab + m / EACH * SAMPLES * pitch(EACH) + m % EACH;
#pragma unroll
                    for (int column = 0; column < COLUMNS; column++)
#pragma unroll
                        for (int e = 0; e < 2; e++) {
                            if (m >= PARTS * EACH || column * 8 + lane % 4 * 2 + e >= SAMPLES) continue;
                            float& to = row[(column * 8 + e) * pitch(EACH)];
                            const float y = sum[tile][column][high * 2 + e];
                            to = group == WARPS / SLABS - 1 ? y : to + y;
                        }
                }
        }
        sync();
    }
}

template <int PARTS, int EACH>
__device__ __forceinline__ float total(const float* slabs, int part, int j, int b) {
    const float* from = slabs + (part * SAMPLES + b) * pitch(EACH) + j;
    float y = 0.0f;
#pragma unroll
    for (int slab = 0; slab < SLABS; slab++) y += from[slab * PARTS * SAMPLES * pitch(EACH)];
    return y;
}

// A product for z: of row thread_index() % 16 and sample thread_index() / 16.
template <int COUNT>
__device__ __forceinline__ float product_for_z(const unsigned char* weights, const bf16* x, float* slabs) {
    float sum[1][COLUMNS][4];
    multiply<1, Z_ROWS, COUNT, COLUMNS <= 3 ? 6 : 4>(sum, weights, x);
    spread<1, 1, Z_ROWS>(sum, slabs);
    const int b = thread_index() / Z_ROWS;
    return b < SAMPLES ? total<1, Z_ROWS>(slabs, 0, thread_index() % Z_ROWS, b) : 0.0f;
}

__device__ __forceinline__ float hyperbolic_tangent(float x) {
    const float e = exponential(-2.0f * fabsf(x)), y = quotient(1.0f - e, 1.0f + e);
    return x < 0.0f ? -y : y;
}

__device__ __forceinline__ float sigmoid(float x) { return quotient(1.0f, 1.0f + exponential(-x)); }

// e^v − 1 for v in [0, 1], the only range the gate needs: eleven Taylor terms leave less than 3e-9.
__device__ __forceinline__ float exponential_less_one(float v) {
    float y = 1.0f;
#pragma unroll
    for (int n = 11; n >= 2; n--) y = 1.0f + v * (1.0f / n) * y;
    return v * y;
}

// e^v − 1 with v = α (r−1) + α_t r, cut off at 1, where every gate is shut. A NaN stays one.
__device__ __forceinline__ float gate_growth(float alpha, float alpha_t, int r) {
    const float v = (r - 1.0f) * alpha + r * alpha_t;
    return exponential_less_one(v > 1.0f ? 1.0f : v);
}

// α, β and e^α of a block's units, [3][UNITS]: in registers they would crowd out the products.
__device__ void keep_gates(float* to, const float* alpha, const float* beta, int n0) {
    for (int j = thread_index(); j < UNITS; j += THREADS) {
        const bool inside = n0 + j < H;
        const float a = inside ? alpha[n0 + j] : 0.0f, kept = a > 87.0f ? 87.0f : a;
        to[j] = kept;
        to[UNITS + j] = inside ? beta[n0 + j] : 0.0f;
        to[2 * UNITS + j] = expf(kept);
    }
}
