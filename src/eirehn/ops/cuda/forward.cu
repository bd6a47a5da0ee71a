// Forward: large/forward_kernel.py says what the buffers hold.
//
// The first blocks own 16 rows of z each, the others UNITS hidden units. Two counters grow: `state` when a unit's
// block has written s, ĝ and m ⊗ h of an inner step, `hyper` when another has written z. While z is made, the units'
// blocks make W h, which stays with them, as do c, a, h and α_t.

struct Arguments {
    const Input* u;
    const Dropout* mask;
    const bf16* W_h;   // (sets, 2HP, HP)
    const bf16* W_ah;  // (HP, HP)
    const Bias* b;
    const float* alpha;
    const float* beta;
    const bf16* W_zs;  // (ZP, 2HP)
    const bf16* W_z;   // (ZP, ZP)
    const Bias* b_z;
    const bf16* P;      // (2HP, ZP)
    const bf16* P_bar;  // (2HP, ZP)
    const Bias* b_bar;
    const int64* batch_sizes;
    const int64* offsets;
    Output* out;
    float* alphas;
    int* flags;
    float* ew;
    bf16* mh;
    bf16* sgz;
    const float* h0;  // (B, HP)
    bf16* board;
    unsigned* counters;
    unsigned char* others;  // sets of W_h that have no room
    int B, T, R;
};

constexpr int HALVES = ELASTIC ? 3 : 2;
constexpr int PROJECTIONS = GATED ? 4 : 2;
constexpr int W_BYTES = HB * HALVES * UNITS * 64;
constexpr int P_BYTES = HYPER ? ZB * PROJECTIONS * UNITS * 64 : 0;
// A side of the board: m ⊗ h, s, ĝ, z.
constexpr int S_AT = HB, Z_AT = 3 * HB, SIDE = (HYPER ? Z_AT + ZB : HB) * SAMPLES * 32;
constexpr int U = HALVES * H;
constexpr int BIASES = 2 * SETS + (GATED ? 2 : 0), CONSTANTS = BIASES + (HYPER ? PROJECTIONS : 0);
constexpr int HEAD = 16 + ((CONSTANTS + 3) * UNITS + 3) / 4 * 16;

struct Change {
    float y, a, c;
};

// W^r h of one half, and what the weight update carries to the next inner step.
__device__ __forceinline__ Change change(float Wh, float h, float w, float q, float a, float c) {
    if constexpr (KIND == PAPER) return {q * (Wh + c * h) + (1.0f - q) * w * h, a, c + w};
    if constexpr (CARRIED) {
        if (KIND == BOUNDED) w = hyperbolic_tangent(w);
        a = q * a;
        c = q * c + (1.0f - q) * w;
        return {a * Wh + c * h, a, c};
    }
    if constexpr (KIND == ADDITIVE) return {Wh + (c + w) * h, a, c + w};
    if constexpr (KIND == SCALING) return {(1.0f + w) * Wh, a, c};
    return {Wh, a, c};
}

// For how many inner steps a unit is open. A NaN counts as open at r = 1, so that it reaches the state.
__device__ __forceinline__ int open_steps(float alpha, float e_alpha, float beta, float alpha_t, int R) {
    // A gate only closes with r, and most are open to the end.
    for (int r = R; r > 1; r--) {
        if (beta - e_alpha * gate_growth(alpha, alpha_t, r) > 0.0f) return r;
    }
    return beta - e_alpha * gate_growth(alpha, alpha_t, 1) <= 0.0f ? 0 : 1;
}

// What a time step brings for one unit of one sample.
struct Step {
    int64 packed;
    bool live;
    float x_s, x_g, u_a;
};

struct Running {
    int64 size, start;
};

__device__ __forceinline__ Running running(const Arguments& given, int i) {
    if (i >= given.T) return {0, 0};
    const int t = REVERSE ? given.T - 1 - i : i;
    return {given.batch_sizes[t], given.offsets[t]};
}

__device__ __forceinline__ Step inputs(const Arguments& given, Running at, int b, int n) {
    Step step = {at.start + b, n < H && b < at.size, 0.0f, 0.0f, 0.0f};
    if (step.live) {
        const Input* u = given.u + step.packed * U + n;
        step.x_s = get(u, 0);
        step.x_g = get(u, H);
        if (ELASTIC) step.u_a = get(u, 2 * H);
    }
    return step;
}

// Of each unit: the biases of all sets, those of ḡ, and w¹ and ḡ¹, each for residual and gate.
__device__ void keep_constants(float* to, float* scratch, const unsigned char* P, const Arguments& given, int n0) {
    for (int at = thread_index(); at < BIASES * UNITS; at += THREADS) {
        const int which = at / UNITS, n = n0 + at % UNITS;
        if (n >= H) {
            to[at] = 0.0f;
        } else {
            to[at] = which < 2 * SETS ? get(given.b, which * H + n) : get(given.b_bar, (which - 2 * SETS) * H + n);
        }
    }
    if constexpr (HYPER) {
        float* firsts = to + BIASES * UNITS;
        first_products<PROJECTIONS * UNITS>(firsts, scratch, P, given.sgz + 2 * HP);
        const int at = thread_index();
        if (GATED && at < 2 * UNITS) {
            firsts[2 * UNITS + at] = sigmoid(firsts[2 * UNITS + at] + to[2 * SETS * UNITS + at]);
        }
    }
}

__device__ void run_units(const Arguments& given) {
    const int B = given.B, T = given.T, R = given.R;
    int* deepest = reinterpret_cast<int*>(memory);
    float* constants = reinterpret_cast<float*>(memory + 16);
    unsigned char* W = memory + HEAD;
    unsigned char* P = W + PLACES * W_BYTES;
    float* slabs = reinterpret_cast<float*>(P + P_BYTES);
    const int n0 = (block_index() - Z_BLOCKS) * UNITS;
    for (int set = 0; set < SETS; set++) {
        const Kept kept = {home<W_BYTES>(W, given.others, set), HALVES * UNITS, HB};
        clear(kept);
        for (int part = 0; part < HALVES; part++) {
            const bf16* from = part < 2 ? given.W_h + int64(set * 2 + part) * HP * HP : given.W_ah;
            keep_rows(kept, part * UNITS, 0, from, HP, n0, UNITS, HP, HP);
        }
    }
    if (HYPER) {
        const Kept kept = {P, PROJECTIONS * UNITS, ZB};
        clear(kept);
        for (int part = 0; part < PROJECTIONS; part++) {
            const bf16* from = part < 2 ? given.P + int64(part) * HP * ZP : given.P_bar + int64(part - 2) * HP * ZP;
            keep_rows(kept, part * UNITS, 0, from, ZP, n0, UNITS, HP, ZP);
        }
    }
    keep_constants(constants, slabs, P, given, n0);
    float* gates = constants + CONSTANTS * UNITS;
    if (ELASTIC) keep_gates(gates, given.alpha, given.beta, n0);

    const int j = thread_index() % UNITS, b = thread_index() / UNITS, n = n0 + j;
    const bool mine = b < B && n < HP, inside = mine && n < H;
    const float* bars = constants + 2 * SETS * UNITS + j;
    const float* firsts = constants + BIASES * UNITS + j;
    float h = mine ? given.h0[b * HP + n] : 0.0f;
    const float dropout = MASKED && inside ? get(given.mask, b * H + n) : 1.0f;
    float alpha_t = 0.0f;
    float a_s = 1.0f, a_g = 1.0f, c_s = 0.0f, c_g = 0.0f;
    unsigned states = 0, hypers = 0, number = 0;
    if (thread_index() == SPEAKER) *deepest = 0;
    if (mine) {
        const bf16 dropped = narrowed(h * dropout);
        given.board[place(0, n, b)] = dropped;
        given.mh[b * HP + n] = dropped;
    }
    arrive(given.counters);
    states += UNIT_BLOCKS;
    Step next = inputs(given, running(given, 0), b, n);

    for (int i = 0; i < T; i++) {
        const Step step = next;
        const bool live = mine && step.live;
        const Running later = running(given, i + 1);
        const int ahead = i * R + R;
        int last = R;
        for (int r = 1; r <= last; r++) {
            const int slot = i * R + r - 1;
            wait(given.counters, states);
            if (ELASTIC && r == 2) {
                last = load_flag(given.flags + i);
                last = last < R ? last : R;
                if (last < 2) break;
            }
            const int set = SETS > 1 ? r - 1 : 0;
            const bf16* seen = given.board + number % 2 * SIDE;
            bf16* side = given.board + ++number % 2 * SIDE;
            float Wh_s = 0.0f, Wh_g = 0.0f, Wh_a = 0.0f;
            if (ELASTIC && r == 1) {
                constexpr int TILES = tiles_of(HALVES * UNITS);
                float sum[TILES][COLUMNS][4];
                multiply<TILES, HALVES * UNITS, HB, 3>(sum, W, seen);
                spread<TILES, HALVES, UNITS>(sum, slabs);
                if (mine) {
                    Wh_s = total<HALVES, UNITS>(slabs, 0, j, b);
                    Wh_g = total<HALVES, UNITS>(slabs, 1, j, b);
                    Wh_a = total<HALVES, UNITS>(slabs, 2, j, b);
                }
            } else {
                constexpr int TILES = tiles_of(2 * UNITS);
                float sum[TILES][COLUMNS][4];
                multiply<TILES, HALVES * UNITS, HB, 3>(sum, ready<W_BYTES>(W, set), seen);
                spread<TILES, 2, UNITS>(sum, slabs);
                if (mine) {
                    Wh_s = total<2, UNITS>(slabs, 0, j, b);
                    Wh_g = total<2, UNITS>(slabs, 1, j, b);
                }
            }
            float w_s = 0.0f, w_g = 0.0f, q_s = 0.0f, q_g = 0.0f;
            // Needs no z, so that its time passes while z is made.
            const float alpha = gates[j], beta = gates[UNITS + j], e_alpha = gates[2 * UNITS + j];
            if (ELASTIC && r == 1) alpha_t = sigmoid(Wh_a + step.u_a);
            const float d = beta - e_alpha * gate_growth(alpha, alpha_t, r);
            if constexpr (HYPER) {
                if (r == 1) {
                    w_s = firsts[0], w_g = firsts[UNITS];
                    if (GATED) q_s = firsts[2 * UNITS], q_g = firsts[3 * UNITS];
                    a_s = a_g = 1.0f;
                    c_s = c_g = 0.0f;
                } else {
                    constexpr int TILES = tiles_of(PROJECTIONS * UNITS);
                    hypers += Z_BLOCKS;
                    wait(given.counters + 32, hypers);
                    float sum[TILES][COLUMNS][4];
                    multiply<TILES, PROJECTIONS * UNITS, ZB, 2>(sum, P, side + Z_AT * SAMPLES * 32);
                    spread<TILES, PROJECTIONS, UNITS>(sum, slabs);
                    if (mine) {
                        w_s = total<PROJECTIONS, UNITS>(slabs, 0, j, b);
                        w_g = total<PROJECTIONS, UNITS>(slabs, 1, j, b);
                        if (GATED) {
                            q_s = sigmoid(total<PROJECTIONS, UNITS>(slabs, 2, j, b) + bars[0]);
                            q_g = sigmoid(total<PROJECTIONS, UNITS>(slabs, 3, j, b) + bars[UNITS]);
                        }
                    }
                }
            }
            if (ELASTIC && r == 1) {
                const int most = most_of_warp(live ? open_steps(alpha, e_alpha, beta, alpha_t, R) : 0);
                if (thread_index() % 32 == 0 && most > 0) raise_shared(deepest, most);
            }
            const Change of_s = change(Wh_s, h, w_s, q_s, a_s, c_s);
            const Change of_g = change(Wh_g, h, w_g, q_g, a_g, c_g);
            const float* bias = constants + set * 2 * UNITS + j;
            const float s = hyperbolic_tangent(of_s.y + bias[0] + (r == 1 ? step.x_s : 0.0f));
            const float g_hat = sigmoid(of_g.y + bias[UNITS] + (r == 1 ? step.x_g : 0.0f));
            const float before = h;
            bool open = live;
            float g = g_hat;
            if (ELASTIC) {
                open = live && (d > 0.0f || (r == 1 && d != d));
                g = d * g_hat;
            }
            if (open) h = g * s + (1.0f - g) * h;

            // What others wait for goes first.
            const bf16 dropped = narrowed(h * dropout), short_s = narrowed(s), short_g = narrowed(g_hat);
            if (mine) {
                side[place(0, n, b)] = dropped;
                if (HYPER) {
                    side[place(S_AT, n, b)] = short_s;
                    side[place(S_AT + HB, n, b)] = short_g;
                }
            }
            sync();
            if (thread_index() == SPEAKER) {
                if (ELASTIC && r == 1) {
                    raise_global(given.flags + i, *deepest);
                    *deepest = 0;
                }
                announce(given.counters);
            }
            states += UNIT_BLOCKS;
            bring<HALVES * UNITS, HB>(W, given.others, r < R ? set + 1 : 0);
            if (mine && KEEP) {
                if (HYPER) {
                    bf16* at = given.sgz + (int64(slot) * B + b) * SGZ + n;
                    at[0] = short_s;
                    at[HP] = short_g;
                }
                given.mh[(int64(ahead) * B + b) * HP + n] = dropped;
                if (r < R) given.mh[(int64(slot + 1) * B + b) * HP + n] = dropped;
                float* own = given.ew + (int64(slot) * B + b) * WIDTH + n;
                own[0] = before;
                own[HP] = s;
                own[2 * HP] = g_hat;
                if (HYPER) {
                    own[3 * HP] = w_s;
                    own[4 * HP] = w_g;
                    own[7 * HP] = c_s;
                    own[8 * HP] = c_g;
                    own[9 * HP] = Wh_s;
                    own[10 * HP] = Wh_g;
                }
                if (GATED) {
                    own[5 * HP] = q_s;
                    own[6 * HP] = q_g;
                }
                if (CARRIED) {
                    own[11 * HP] = a_s;
                    own[12 * HP] = a_g;
                }
            }
            if (live) {
                put(given.out, step.packed * H + n, h);
                if (ELASTIC && r == 1) given.alphas[step.packed * H + n] = alpha_t;
            }
            if (r == 1) next = inputs(given, later, b, n);
            a_s = of_s.a, c_s = of_s.c, a_g = of_g.a, c_g = of_g.c;
        }
    }
}

__device__ void run_hyper(const Arguments& given) {
    constexpr int COUNT = 2 * HB + ZB;
    const int B = given.B, R = given.R;
    float* firsts = reinterpret_cast<float*>(memory);
    unsigned char* W = memory + Z_ROWS * 4;
    float* slabs = reinterpret_cast<float*>(W + COUNT * Z_ROWS * 64);
    const int n0 = block_index() * Z_ROWS;
    const Kept kept = {W, Z_ROWS, COUNT};
    clear(kept);
    for (int part = 0; part < 2; part++) {
        keep_rows(kept, 0, part * HB, given.W_zs + part * HP, 2 * HP, n0, Z_ROWS, ZP, HP);
    }
    keep_rows(kept, 0, 2 * HB, given.W_z, ZP, n0, Z_ROWS, ZP, ZP);
    const int j = thread_index() % Z_ROWS, b = thread_index() / Z_ROWS, n = n0 + j;
    // z¹ is a constant: the first product for z leaves it out.
    first_products<Z_ROWS>(firsts, slabs, W + 2 * HB * Z_ROWS * 64, given.sgz + 2 * HP);
    const bool mine = b < B && n < ZP;
    const float bias = mine && n < Z ? get(given.b_z, n) : 0.0f;
    unsigned number = 0;
    for (int i = 0; i < given.T; i++) {
        int last = R;
        for (int r = 2; r <= last; r++) {
            wait(given.counters, (number + r) * UNIT_BLOCKS);
            if (r == 2) {
                last = load_flag(given.flags + i);
                last = last < R ? last : R;
                if (last < 2) break;
            }
            const int slot = i * R + r - 1;
            const bf16* seen = given.board + (number + r - 1) % 2 * SIDE + S_AT * SAMPLES * 32;
            const float y = r == 2 ? product_for_z<2 * HB>(W, seen, slabs) + firsts[j]
                                   : product_for_z<COUNT>(W, seen, slabs);
            const float z = hyperbolic_tangent(y + bias);
            const bf16 short_z = narrowed(z);
            if (mine) given.board[(number + r) % 2 * SIDE + place(Z_AT, n, b)] = short_z;
            arrive(given.counters + 32);
            if (mine && KEEP) {
                given.sgz[(int64(slot) * B + b) * SGZ + 2 * HP + n] = short_z;
                given.ew[(int64(slot) * B + b) * WIDTH + 13 * HP + n] = z;
            }
        }
        number += last > 1 ? last : 1;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) forward_pass(const Arguments given) {
    if (HYPER && block_index() < Z_BLOCKS) {
        run_hyper(given);
    } else if (block_index() < Z_BLOCKS + UNIT_BLOCKS) {
        run_units(given);
    }
}
