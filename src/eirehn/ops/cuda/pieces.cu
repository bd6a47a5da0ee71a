// What both passes share. The constants before this are of one network: see resident.py.
//
// A product is (rows of weights) × (samples). Its sum is cut into blocks of 32, and warp w takes blocks w,
// w + WARPS, …: every value of the state is read once by a multiprocessor. Which of a block's elements meets which
// is free as long as weights and state agree, so a lane takes 8 that lie side by side, in one read.

constexpr int WARPS = THREADS / 32;
constexpr int NONE = 0, PRINTED = 1, RECURSIVE = 2, ADDITIVE = 3, SCALING = 4;
constexpr bool HYPER = KIND != NONE;
constexpr bool GATED = KIND == PRINTED || KIND == RECURSIVE;
constexpr int SGZ = 2 * HP + ZP + 8;

__device__ constexpr int blocks_of(int k) { return (k + 31) / 32; }
__device__ constexpr int bytes_of(int rows, int k) { return blocks_of(k) * rows * 64; }
__device__ constexpr int tiles_of(int rows) { return (rows + 15) / 16; }
// Rows apart so that neither the writes of a product nor the reads of its sum share a bank.
__device__ constexpr int spaced(int rows) { return (rows + 3) / 8 * 8 + 4; }

__device__ __forceinline__ float get(const float* from, int64 at) { return from[at]; }
__device__ __forceinline__ float get(const bf16* from, int64 at) { return widened(from[at]); }
__device__ __forceinline__ void put(float* to, int64 at, float x) { to[at] = x; }
__device__ __forceinline__ void put(bf16* to, int64 at, float x) { to[at] = narrowed(x); }

// Rows `first`… of each of `parts` weights, which lie `count` rows apart: [block of 32][row][32].
template <int K>
__device__ void keep_weights(unsigned char* to, const bf16* from, int parts, int each, int first, int count) {
    const int rows = parts * each;
    for (int at = thread_index(); at < blocks_of(K) * rows * 4; at += THREADS) {
        const int part = at % 4, row = at / 4 % rows, k = at / 4 / rows * 32 + part * 8;
        const int n = first + row % each;
        Words value = {0, 0, 0, 0};
        if (n < count && k < K) {
            value = *reinterpret_cast<const Words*>(from + (int64(row / each) * count + n) * K + k);
        }
        *reinterpret_cast<Words*>(to + at * 16) = value;
    }
}

template <int TILES, int K, int BATCH>
__device__ __forceinline__ void multiply(
    float (&sum)[TILES][COLUMNS][4], const unsigned char* weights, int rows, const bf16* x, int stride, int B
) {
    constexpr int BLOCKS = blocks_of(K);
    const int lane = thread_index() % 32, warp = thread_index() / 32, row = lane / 4, part = lane % 4;
    const bf16* mine = x + int64(row) * stride + part * 8;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int column = 0; column < COLUMNS; column++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[tile][column][e] = 0.0f;
#pragma unroll
    for (int first = 0; first < BLOCKS; first += WARPS * BATCH) {
        // All reads are under way before the first product: their time is paid once.
        Words in[BATCH][COLUMNS];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int block = first + i * WARPS + warp;
#pragma unroll
            for (int column = 0; column < COLUMNS; column++) {
                in[i][column] = {0, 0, 0, 0};
                if (block * 32 + part * 8 < K && column * 8 + row < B) {
                    in[i][column] = load_shared_state(mine + int64(column) * 8 * stride + block * 32);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int block = first + i * WARPS + warp;
            if (block >= BLOCKS) break;
            const unsigned char* at = weights + (block * rows + row) * 64 + part * 16;
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                const Words low = *reinterpret_cast<const Words*>(at + tile * 1024);
                const Words high = *reinterpret_cast<const Words*>(at + tile * 1024 + 512);
#pragma unroll
                for (int column = 0; column < COLUMNS; column++) {
                    const Words& y = in[i][column];
                    multiply_add(sum[tile][column], low.x, high.x, low.y, high.y, y.x, y.y);
                    multiply_add(sum[tile][column], low.z, high.z, low.w, high.w, y.z, y.w);
                }
            }
        }
    }
}

// The warps' sums side by side, [SLABS][sample][row], or so many of them that have room, the others added in order.
template <int TILES, int M>
__device__ __forceinline__ void spread(float (&sum)[TILES][COLUMNS][4], float* slabs, int B) {
    const int lane = thread_index() % 32, warp = thread_index() / 32, row = lane / 4, part = lane % 4;
    float* slab = slabs + (warp % SLABS) * B * spaced(M);
#pragma unroll
    for (int group = WARPS / SLABS - 1; group >= 0; group--) {
        if (warp / SLABS == group) {
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int column = 0; column < COLUMNS; column++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const int m = tile * 16 + row + e / 2 * 8, b = column * 8 + part * 2 + e % 2;
                        if (m < M && b < B) {
                            float& to = slab[b * spaced(M) + m];
                            to = group == WARPS / SLABS - 1 ? sum[tile][column][e] : to + sum[tile][column][e];
                        }
                    }
        }
        sync();
    }
}

template <int M>
__device__ __forceinline__ float total(const float* slabs, int m, int b, int B) {
    float y = 0.0f;
#pragma unroll
    for (int slab = 0; slab < SLABS; slab++) y += slabs[(slab * B + b) * spaced(M) + m];
    return y;
}

__device__ __forceinline__ float hyperbolic_tangent(float x) {
    const float e = exponential(-2.0f * fabsf(x)), y = quotient(1.0f - e, 1.0f + e);
    return x < 0.0f ? -y : y;
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

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
