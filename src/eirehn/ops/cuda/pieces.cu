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
constexpr int INBOX = SPLIT > 1 ? 16 * SAMPLES * 4 : 0;

__device__ constexpr int blocks_of(int k) { return (k + 31) / 32; }
__device__ constexpr int bytes_of(int rows, int k) { return blocks_of(k) * rows * 64; }
__device__ constexpr int tiles_of(int rows) { return (rows + 15) / 16; }
// Rows apart so that neither the writes of a product nor the reads of its sum share a bank.
__device__ constexpr int spaced(int rows) { return (rows + 3) / 8 * 8 + 4; }

__device__ __forceinline__ float get(const float* from, int64 at) { return from[at]; }
__device__ __forceinline__ float get(const bf16* from, int64 at) { return widened(from[at]); }
__device__ __forceinline__ void put(float* to, int64 at, float x) { to[at] = x; }
__device__ __forceinline__ void put(bf16* to, int64 at, float x) { to[at] = narrowed(x); }

// Weights lie in shared memory as [block of 32][row][32], of the blocks from `start` on.
__device__ __forceinline__ void clear(unsigned char* to, int bytes) {
    for (int at = thread_index() * 16; at < bytes; at += THREADS * 16) {
        *reinterpret_cast<Words*>(to + at) = {0, 0, 0, 0};
    }
}

// Rows `first`… of each of `parts` weights, which lie `count` rows apart.
template <int K>
__device__ void keep_rows(
    unsigned char* to, const bf16* from, int parts, int each, int first, int count, int start, int blocks
) {
    const int rows = parts * each;
    for (int at = thread_index(); at < blocks * rows * 4; at += THREADS) {
        const int part = at % 4, row = at / 4 % rows, k = (start + at / 4 / rows) * 32 + part * 8;
        const int n = first + row % each;
        Words value = {0, 0, 0, 0};
        if (n < count && k < K) {
            value = *reinterpret_cast<const Words*>(from + (int64(row / each) * count + n) * K + k);
        }
        *reinterpret_cast<Words*>(to + at * 16) = value;
    }
}

// Columns `first`… of `from`, whose rows are the elements `low`… of the sums: they become the rows `row`… of the
// weights, in cleared memory. `first` of whole reads of 8.
__device__ void keep_columns(
    unsigned char* to, int rows, int row, const bf16* from, int stride, int first, int each, int count, int low,
    int high, int start, int blocks
) {
    const int begin = first / 8 * 8, reads = (first + each - begin + 7) / 8;
    const int lowest = low > start * 32 ? low : start * 32;
    const int highest = high < (start + blocks) * 32 ? high : (start + blocks) * 32;
    for (int at = thread_index(); at < (highest - lowest) * reads; at += THREADS) {
        const int k = lowest + at / reads, column = begin + at % reads * 8;
        if (column >= count) continue;
        const Words value = *reinterpret_cast<const Words*>(from + int64(k - low) * stride + column);
        const unsigned words[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int j = column + e - first;
            if (j >= 0 && j < each) {
                bf16* place = reinterpret_cast<bf16*>(to + ((k / 32 - start) * rows + row + j) * 64) + k % 32;
                *place = bf16(words[e / 2] >> (e % 2 * 16));
            }
        }
    }
}

template <int TILES, int K, int BATCH, int BLOCKS = blocks_of(K)>
__device__ __forceinline__ void multiply(
    float (&sum)[TILES][COLUMNS][4],
    const unsigned char* weights,
    int rows,
    const bf16* x,
    int stride,
    int B,
    int start = 0
) {
    const int lane = thread_index() % 32, warp = thread_index() / 32, row = lane / 4, part = lane % 4;
    const bf16* mine = x + int64(row) * stride + start * 32 + part * 8;
    const int left = K - start * 32 - part * 8;  // of the sum, from this lane's first element on
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
                if (block < BLOCKS && block * 32 < left && column * 8 + row < B) {
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
__device__ __forceinline__ void spread(float (&sum)[TILES][COLUMNS][4], float* slabs) {
    const int lane = thread_index() % 32, warp = thread_index() / 32, row = lane / 4, part = lane % 4;
    float* slab = slabs + (warp % SLABS) * SAMPLES * spaced(M);
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
                        if (m < M && b < SAMPLES) {
                            float& to = slab[b * spaced(M) + m];
                            to = group == WARPS / SLABS - 1 ? sum[tile][column][e] : to + sum[tile][column][e];
                        }
                    }
        }
        sync();
    }
}

template <int M>
__device__ __forceinline__ float total(const float* slabs, int m, int b) {
    float y = 0.0f;
#pragma unroll
    for (int slab = 0; slab < SLABS; slab++) y += slabs[(slab * SAMPLES + b) * spaced(M) + m];
    return y;
}

// A product for z, 16 rows a block. Two blocks share the reading where they are a cluster (SPLIT = 2): each takes half
// of the sum, for the rows of both, and hands the other what belongs to it. The result is of row thread_index() % 16
// and sample thread_index() / 16.
constexpr int Z_ROWS = 16 * SPLIT;
__device__ constexpr int share_of(int k) { return (blocks_of(k) + SPLIT - 1) / SPLIT; }

template <int K, int BATCH>
__device__ __forceinline__ float product_for_z(
    const unsigned char* weights, const bf16* x, int stride, int B, int half, float* slabs, float* inbox
) {
    float sum[SPLIT][COLUMNS][4];
    multiply<SPLIT, K, BATCH, share_of(K)>(sum, weights, Z_ROWS, x, stride, B, half * share_of(K));
    spread<SPLIT, Z_ROWS>(sum, slabs);
    const int j = thread_index() % 16, b = thread_index() / 16;
    const bool mine = b < B;
    float y = 0.0f;
    if constexpr (SPLIT > 1) {
        if (mine) put_other(inbox + thread_index(), total<Z_ROWS>(slabs, (1 - half) * 16 + j, b));
    }
    if (mine) y = total<Z_ROWS>(slabs, half * 16 + j, b);
    if constexpr (SPLIT > 1) {
        sync_both();
        if (mine) y = half == 0 ? y + inbox[thread_index()] : inbox[thread_index()] + y;
    }
    return y;
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
