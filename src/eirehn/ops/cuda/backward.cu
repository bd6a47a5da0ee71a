// Backward: large/backward_kernel.py says what the buffers hold.
//
// Blocks own units and rows of z as in the forward pass. `state` grows when a unit's block has written the gradients
// at the products of an inner step, `hyper` when another has written that of z. While that is made, the units'
// blocks make what comes back through W_h. In `carry` they leave the gradient at the state before the first time step,
// less what comes through W_h and W_ah, and behind it that.

struct Arguments {
    const Dropout* mask;
    const bf16* W_h;    // (sets, 2HP, HP)
    const bf16* W_ah;   // (HP, HP)
    const bf16* W_zs;   // (ZP, 2HP)
    const bf16* W_z;    // (ZP, ZP)
    const bf16* P;      // (2HP, ZP)
    const bf16* P_bar;  // (2HP, ZP)
    const float* alpha;
    const float* beta;
    const int64* batch_sizes;
    const int64* offsets;
    const float* alphas;
    const int* flags;
    const Outward* d_out;
    Input* d_u;
    const float* ew;
    bf16* grads;
    float* carry;
    float* sums;
    bf16* board;
    unsigned* counters;
    unsigned char* others;  // sets of W_h that have no room
    int B, T, R;
};

constexpr int HALVES = ELASTIC ? 3 : 2;
constexpr int PROJECTIONS = GATED ? 4 : 2;
constexpr int HYPER_AT = (3 + PROJECTIONS) * HP;
constexpr int U = HALVES * H;
constexpr int W_BYTES = HALVES * HB * UNITS * 64;
constexpr int S_BYTES = HYPER ? ZB * 2 * UNITS * 64 : 0;
// A side of the board: the gradients at W h, W_a h, w and ḡ, and z.
constexpr int P_AT = HALVES * HB, Z_AT = P_AT + PROJECTIONS * HB;
constexpr int SIDE = (HYPER ? Z_AT + ZB : P_AT) * SAMPLES * 32;
constexpr int SUMS = ELASTIC ? 4 : 2;
constexpr int RESULTS = 2 + (HYPER ? PROJECTIONS : 0);
constexpr int HEAD = SETS * SUMS * THREADS * 4 + (3 * UNITS + 3) / 4 * 16;

// What the forward pass kept of one unit of one sample at one inner step.
struct Past {
    float h, s, g_hat, w_s, w_g, q_s, q_g, c_s, c_g, Wh_s, Wh_g, a_s, a_g;
};

__device__ __forceinline__ Past past(const Arguments& given, int slot, int r, int b, int n, bool mine) {
    Past x = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 1.0f, 1.0f};
    if (!mine) return x;
    const float* own = given.ew + (int64(slot) * given.B + b) * WIDTH + n;
    x.h = own[0], x.s = own[HP], x.g_hat = own[2 * HP];
    if (HYPER) {
        x.w_s = own[3 * HP], x.w_g = own[4 * HP];
        x.Wh_s = own[9 * HP], x.Wh_g = own[10 * HP];
        if (r > 1) x.c_s = own[7 * HP], x.c_g = own[8 * HP];
    }
    if (GATED) x.q_s = own[5 * HP], x.q_g = own[6 * HP];
    if (CARRIED && r > 1) x.a_s = own[11 * HP], x.a_g = own[12 * HP];
    return x;
}

struct Back {
    float Wh, h, w, q, a, c;
};

// The gradients of forward.cu's `change` at its inputs, given those at its results.
__device__ __forceinline__ Back change_back(
    float dy, float Wh, float h, float w, float q, float a, float c, float da, float dc
) {
    if constexpr (KIND == PAPER) {
        const float dWh = dy * q;
        return {
            dWh, dy * (q * c + (1.0f - q) * w), dy * (1.0f - q) * h + dc, dy * (Wh + (c - w) * h), da, dc + dWh * h
        };
    }
    if constexpr (CARRIED) {
        if (KIND == BOUNDED) w = hyperbolic_tangent(w);
        da += dy * Wh;
        dc += dy * h;
        const float dw = dc * (1.0f - q) * (KIND == BOUNDED ? 1.0f - w * w : 1.0f);
        return {dy * q * a, dy * (q * c + (1.0f - q) * w), dw, da * a + dc * (c - w), da * q, dc * q};
    }
    if constexpr (KIND == ADDITIVE) return {dy, dy * (c + w), dc + dy * h, 0.0f, da, dc + dy * h};
    if constexpr (KIND == SCALING) return {dy * (1.0f + w), 0.0f, dy * Wh, 0.0f, da, dc};
    return {dy, 0.0f, 0.0f, 0.0f, da, dc};
}

struct Running {
    int64 size, start;
    int last;
};

__device__ __forceinline__ Running running(const Arguments& given, int i) {
    if (i < 0) return {0, 0, 0};
    const int t = REVERSE ? given.T - 1 - i : i;
    int last = given.R;
    if (ELASTIC) {
        const int flag = given.flags[i];
        last = flag < 1 ? 1 : flag < last ? flag : last;
    }
    return {given.batch_sizes[t], given.offsets[t], last};
}

// The sums over samples, in order, added to what earlier launches left.
__device__ void add_sums(const Arguments& given, const float* sums, int n0) {
    sync();
    for (int at = thread_index(); at < SETS * SUMS * UNITS; at += THREADS) {
        const int j = at % UNITS, which = at / UNITS, n = n0 + j;
        if (n >= HP) continue;
        float y = 0.0f;
        for (int b = 0; b < given.B; b++) y += sums[which * THREADS + b * UNITS + j];
        given.sums[(which / SUMS * 4 + which % SUMS) * HP + n] += y;
    }
}

__device__ void run_units(const Arguments& given) {
    const int B = given.B, R = given.R;
    float* sums = reinterpret_cast<float*>(memory);  // [set][which][thread]
    float* gates = sums + SETS * SUMS * THREADS;
    unsigned char* W = memory + HEAD;
    unsigned char* S = W + PLACES * W_BYTES;
    float* slabs = reinterpret_cast<float*>(S + S_BYTES);
    const int n0 = (block_index() - Z_BLOCKS) * UNITS;
    for (int set = 0; set < SETS; set++) {
        const Kept kept = {home<W_BYTES>(W, given.others, set), UNITS, HALVES * HB};
        clear(kept);
        for (int part = 0; part < HALVES; part++) {
            const bf16* from = part < 2 ? given.W_h + int64(set * 2 + part) * HP * HP : given.W_ah;
            keep_columns(kept, 0, part * HB, from, HP, n0, UNITS, HP, HP);
        }
    }
    if (HYPER) {
        const Kept kept = {S, 2 * UNITS, ZB};
        clear(kept);
        for (int part = 0; part < 2; part++) {
            keep_columns(kept, part * UNITS, 0, given.W_zs + part * HP, 2 * HP, n0, UNITS, HP, ZP);
        }
    }
    if (ELASTIC) keep_gates(gates, given.alpha, given.beta, n0);

    const int j = thread_index() % UNITS, b = thread_index() / UNITS, n = n0 + j;
    const bool mine = b < B && n < HP, inside = mine && n < H;
    for (int which = 0; which < SETS * SUMS; which++) sums[which * THREADS + thread_index()] = 0.0f;
    float dh = mine ? given.carry[int64(b) * 6 * HP + n] : 0.0f;
    const float dropout = MASKED && inside ? get(given.mask, b * H + n) : 1.0f;
    float dc_s = 0.0f, dc_g = 0.0f, da_s = 0.0f, da_g = 0.0f, d_alpha_t = 0.0f;
    unsigned states = 0, hypers = 0, number = 0;
    for (int part = 0; mine && part < HALVES; part++) {
        const int64 later = int64(given.T) * R * B + b;
        given.board[place(part * HB, n, b)] = given.grads[later * GRADS + part * HP + n];
    }
    arrive(given.counters);
    states += UNIT_BLOCKS;
    Running next = running(given, given.T - 1);

    for (int i = given.T - 1; i >= 0; i--) {
        const Running now = next;
        next = running(given, i - 1);
        const int64 packed = now.start + b;
        const bool live = inside && b < now.size;
        float d_last = 0.0f, alpha_t = 0.0f;
        if (live) {
            d_last = get(given.d_out, packed * H + n);
            if (ELASTIC) alpha_t = given.alphas[packed * H + n];
        }
        // The weight gradients read the rows of inner steps that were not taken, too.
        for (int r = R; mine && r > now.last; r--) {
            bf16* item = given.grads + (int64(i * R + r - 1) * B + b) * GRADS + n;
            for (int part = 0; part < RESULTS; part++) item[(part < 2 ? part : part + 1) * HP] = 0;
        }
        for (int r = now.last; r >= 1; r--) {
            const bool top = r == now.last;
            const int slot = i * R + r - 1;
            const Past x = past(given, slot, r, b, n, mine);
            if (top) {
                dh += d_last;
                dc_s = dc_g = da_s = da_g = d_alpha_t = 0.0f;
            }
            wait(given.counters, states);
            const bf16* seen = given.board + number % 2 * SIDE;
            bf16* side = given.board + ++number % 2 * SIDE;
            float dmh = 0.0f, from_z_s = 0.0f, from_z_g = 0.0f;
            const unsigned char* weights = ready<W_BYTES>(W, SETS > 1 && !top ? r : 0);
            {
                float sum[1][COLUMNS][4];
                if (top) {
                    multiply<1, UNITS, HALVES * HB, 5>(sum, weights, seen);
                } else {
                    multiply<1, UNITS, 2 * HB, 5>(sum, weights, seen);
                }
                spread<1, 1, UNITS>(sum, slabs);
                if (mine) dmh = total<1, UNITS>(slabs, 0, j, b);
            }
            if constexpr (HYPER) {
                if (!top) {
                    constexpr int TILES = tiles_of(2 * UNITS);
                    hypers += Z_BLOCKS;
                    wait(given.counters + 32, hypers);
                    float sum[TILES][COLUMNS][4];
                    multiply<TILES, 2 * UNITS, ZB, 2>(sum, S, side + Z_AT * SAMPLES * 32);
                    spread<TILES, 2, UNITS>(sum, slabs);
                    if (mine) {
                        from_z_s = total<2, UNITS>(slabs, 0, j, b);
                        from_z_g = total<2, UNITS>(slabs, 1, j, b);
                    }
                }
            }
            dh += MASKED ? dmh * dropout : dmh;
            float ds, dg_hat, dd = 0.0f, d_growth = 0.0f, growth = 0.0f, d_v = 0.0f;
            if (ELASTIC) {
                const float e_alpha = gates[2 * UNITS + j];
                growth = gate_growth(gates[j], alpha_t, r);
                const float d = gates[UNITS + j] - e_alpha * growth;
                const bool open = live && (d > 0.0f || (r == 1 && d != d));
                const float g = d * x.g_hat;
                const float dg = open ? dh * (x.s - x.h) : 0.0f;
                ds = open ? dh * g : 0.0f;
                dg_hat = open ? dg * d : 0.0f;
                dd = open ? dg * x.g_hat : 0.0f;
                if (open) dh *= 1.0f - g;
                d_growth = -e_alpha * dd;
                d_v = d_growth * (growth + 1.0f);
                d_alpha_t += r * d_v;
            } else {
                ds = dh * x.g_hat;
                dg_hat = dh * (x.s - x.h);
                if (live) dh *= 1.0f - x.g_hat;
            }
            // What comes through the next inner step's z comes to shut units too.
            const float dx_s = live ? (ds + from_z_s) * (1.0f - x.s * x.s) : 0.0f;
            const float dx_g = live ? (dg_hat + from_z_g) * x.g_hat * (1.0f - x.g_hat) : 0.0f;
            const Back of_s = change_back(dx_s, x.Wh_s, x.h, x.w_s, x.q_s, x.a_s, x.c_s, da_s, dc_s);
            const Back of_g = change_back(dx_g, x.Wh_g, x.h, x.w_g, x.q_g, x.a_g, x.c_g, da_g, dc_g);
            dh += of_s.h + of_g.h;
            da_s = of_s.a, dc_s = of_s.c, da_g = of_g.a, dc_g = of_g.c;
            const float du_a = live ? d_alpha_t * alpha_t * (1.0f - alpha_t) : 0.0f;

            const bf16 results[6] = {
                narrowed(live ? of_s.Wh : 0.0f),
                narrowed(live ? of_g.Wh : 0.0f),
                narrowed(live ? of_s.w : 0.0f),
                narrowed(live ? of_g.w : 0.0f),
                narrowed(live ? of_s.q * x.q_s * (1.0f - x.q_s) : 0.0f),
                narrowed(live ? of_g.q * x.q_g * (1.0f - x.q_g) : 0.0f)
            };
            // What others wait for goes first.
            if (mine) {
#pragma unroll
                for (int part = 0; part < RESULTS; part++) {
                    side[place((part < 2 ? part : part - 2 + HALVES) * HB, n, b)] = results[part];
                }
                if (ELASTIC && r == 1) side[place(2 * HB, n, b)] = narrowed(du_a);
            }
            arrive(given.counters);
            states += UNIT_BLOCKS;
            bring<UNITS, HALVES * HB>(W, given.others, r - 1);
            if (mine) {
                bf16* item = given.grads + (int64(slot) * B + b) * GRADS + n;
#pragma unroll
                for (int part = 0; part < RESULTS; part++) item[(part < 2 ? part : part + 1) * HP] = results[part];
                if (ELASTIC && r == 1) item[2 * HP] = narrowed(du_a);
            }
            if (live && r == 1) {
                Input* d_u = given.d_u + packed * U + n;
                put(d_u, 0, dx_s);
                put(d_u, H, dx_g);
                if (ELASTIC) put(d_u, 2 * H, du_a);
            }
            float* own = sums + (SETS > 1 ? r - 1 : 0) * SUMS * THREADS + thread_index();
            own[0] += dx_s;
            own[THREADS] += dx_g;
            if (ELASTIC) {
                own[2 * THREADS] += d_growth * growth + (r - 1.0f) * d_v;
                own[3 * THREADS] += dd;
            }
        }
    }
    float sum[1][COLUMNS][4];
    wait(given.counters, states);
    multiply<1, UNITS, HALVES * HB, 5>(sum, W, given.board + number % 2 * SIDE);
    spread<1, 1, UNITS>(sum, slabs);
    if (mine) {
        given.carry[int64(b) * 6 * HP + n] = dh;
        given.carry[int64(b) * 6 * HP + HP + n] = total<1, UNITS>(slabs, 0, j, b) * dropout;
    }
    add_sums(given, sums, n0);
}

__device__ void run_hyper(const Arguments& given) {
    constexpr int COUNT = PROJECTIONS * HB + ZB;
    const int B = given.B, R = given.R;
    unsigned char* W = memory;
    float* slabs = reinterpret_cast<float*>(W + COUNT * Z_ROWS * 64);
    const int n0 = block_index() * Z_ROWS;
    const Kept kept = {W, Z_ROWS, COUNT};
    clear(kept);
    for (int part = 0; part < PROJECTIONS; part++) {
        const bf16* from = part < 2 ? given.P + int64(part) * HP * ZP : given.P_bar + int64(part - 2) * HP * ZP;
        keep_columns(kept, 0, part * HB, from, ZP, n0, Z_ROWS, ZP, HP);
    }
    keep_columns(kept, 0, PROJECTIONS * HB, given.W_z, ZP, n0, Z_ROWS, ZP, ZP);
    const int j = thread_index() % Z_ROWS, b = thread_index() / Z_ROWS, n = n0 + j;
    const bool mine = b < B && n < ZP;
    unsigned number = 0;
    int next = running(given, given.T - 1).last;
    for (int i = given.T - 1; i >= 0; i--) {
        const int last = next;
        next = running(given, i - 1).last;
        for (int r = R; mine && r >= last; r--) {
            given.grads[(int64(i * R + r - 1) * B + b) * GRADS + HYPER_AT + n] = 0;
        }
        for (int r = last; r >= 1; r--) {
            number++;
            if (r == 1) break;  // z¹ is a constant, and its gradient a sum: left to the host
            const int slot = i * R + r - 1;
            const float z = mine ? given.ew[(int64(slot) * B + b) * WIDTH + 13 * HP + n] : 0.0f;
            wait(given.counters, (number + 1) * UNIT_BLOCKS);
            const bf16* seen = given.board + number % 2 * SIDE + P_AT * SAMPLES * 32;
            // Nothing comes from above the last.
            const float y = r == last ? product_for_z<PROJECTIONS * HB>(W, seen, slabs)
                                      : product_for_z<COUNT>(W, seen, slabs);
            const bf16 dz = narrowed(y * (1.0f - z * z));
            if (mine) given.board[(number + 1) % 2 * SIDE + place(Z_AT, n, b)] = dz;
            arrive(given.counters + 32);
            if (mine) given.grads[(int64(slot - 1) * B + b) * GRADS + HYPER_AT + n] = dz;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) backward_pass(const Arguments given) {
    if (HYPER && block_index() < Z_BLOCKS) {
        run_hyper(given);
    } else if (block_index() < Z_BLOCKS + UNIT_BLOCKS) {
        run_units(given);
    }
}
