// What a training step does with its gradients, for all values of a network in two passes over memory: the penalty and
// the length of the gradient in `measure_pass`; clipping, the optimiser, the running average and the copies in
// bfloat16 that products read in `change_pass`.

struct Part {
    float* value;
    bf16* low;                 // its copy, or none
    const float* gradient;     // of the value, or none
    const bf16* low_gradient;  // of its copy, or none; the value's is the sum of both
    float* first;              // Adam's mean gradient, or none
    float* second;             // and mean square, or none
    float* average;            // or none
    int64 count;
    int64 group;  // whose rate it has; below 0 for values that are averaged and not trained
};

struct Arguments {
    Part parts[PARTS];
    const float* rates;  // of the groups; behind them what an average takes of a new value
    const float* step;   // Adam's, this one counted
    const float* share;  // of the rate that is left, or none
    double* squares;     // of the gradient, summed by each block of every launch
    double* left_out;    // counts the steps whose gradients overflowed
    double beta1, beta2;
    float penalty, clip, epsilon, weight_decay;
    int blocks;    // of this launch
    int measured;  // numbers in `squares`
    int counting;  // whether this is the launch that counts
};

template <class T>
struct alignas(4 * sizeof(T)) Four {
    T at[4];
};

constexpr int ROUNDS = 2;  // of four numbers a thread, all read before the first is used
constexpr int CHUNK = ROUNDS * THREADS * 4;

// Four numbers from `at` on; WHOLE where all of them are known to be there, so that they are one access.
template <bool WHOLE, class T>
__device__ __forceinline__ Four<T> load(const T* from, int64 at, int64 count) {
    if (WHOLE) return *reinterpret_cast<const Four<T>*>(from + at);
    Four<T> y = {};
    for (int i = 0; i < 4; i++) {
        if (at + i < count) y.at[i] = from[at + i];
    }
    return y;
}

template <bool WHOLE, class T>
__device__ __forceinline__ void store(T* to, int64 at, int64 count, const Four<T>& x) {
    if (WHOLE) {
        store_four(to + at, x.at);
        return;
    }
    for (int i = 0; i < 4; i++) {
        if (at + i < count) to[at + i] = x.at[i];
    }
}

__device__ __forceinline__ Four<bf16> narrowed(const Four<float>& x) {
    Four<bf16> y;
    for (int i = 0; i < 4; i++) y.at[i] = narrowed(x.at[i]);
    return y;
}

// With the penalty's.
template <bool WHOLE>
__device__ __forceinline__ Four<float> gradient_of(const Part& part, int64 at, const Four<float>& value, float penalty) {
    Four<float> y = {};
    if (part.gradient) y = load<WHOLE>(part.gradient, at, part.count);
    if (part.low_gradient) {
        const Four<bf16> low = load<WHOLE>(part.low_gradient, at, part.count);
        for (int i = 0; i < 4; i++) y.at[i] += widened(low.at[i]);
    }
    for (int i = 0; i < 4; i++) y.at[i] += penalty * value.at[i];
    return y;
}

// Over the threads of a block, in an order that does not change; all of them learn it.
__device__ __forceinline__ double total_of(double own) {
    double* sums = reinterpret_cast<double*>(memory);
    sums[thread_index()] = own;
    sync();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (thread_index() < half) sums[thread_index()] += sums[thread_index() + half];
        sync();
    }
    const double total = sums[0];
    sync();
    return total;
}

// The chunks of all parts in a row, of which each block takes every `blocks`-th.
struct Walk {
    const Arguments& given;
    int part = 0;
    int64 chunk, before = 0;

    __device__ __forceinline__ explicit Walk(const Arguments& all) : given(all), chunk(block_index()) {}

    // Whether there is one more, and where in its part it begins.
    __device__ __forceinline__ bool next(int64& begin) {
        while (part < PARTS) {
            const int64 chunks = (given.parts[part].count + CHUNK - 1) / CHUNK;
            if (chunk < before + chunks) {
                begin = (chunk - before) * CHUNK;
                chunk += given.blocks;
                return true;
            }
            before += chunks;
            part++;
        }
        return false;
    }
};

template <bool WHOLE>
__device__ __forceinline__ float square_of(const Arguments& given, const Part& part, int64 begin) {
    Four<float> gradients[ROUNDS];
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        const int64 at = begin + (i * THREADS + thread_index()) * 4;
        gradients[i] = gradient_of<WHOLE>(part, at, load<WHOLE>(part.value, at, part.count), given.penalty);
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = 0; j < 4; j++) sum += gradients[i].at[j] * gradients[i].at[j];
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) measure_pass(const __grid_constant__ Arguments given) {
    float own = 0.0f;
    Walk walk(given);
    for (int64 begin; walk.next(begin);) {
        const Part& part = given.parts[walk.part];
        if (part.group < 0) continue;
        const bool whole = begin + CHUNK <= part.count;
        own += whole ? square_of<true>(given, part, begin) : square_of<false>(given, part, begin);
    }
    const double total = total_of(own);
    if (thread_index() == 0) given.squares[block_index()] = total;
}

// What the gradient is multiplied with; below 0 where it overflowed, and says nothing.
__device__ __forceinline__ float factor_of(const Arguments& given) {
    const float factor = given.share ? *given.share : 1.0f;
    if (!CLIPPED) return factor;
    double own = 0.0;
    for (int i = thread_index(); i < given.measured; i += THREADS) own += given.squares[i];
    const float length = float(sqrt(total_of(own)));
    if (!(length <= 3.4e38f)) return -1.0f;
    const float shorter = given.clip / (length + 1e-6f);
    return shorter < 1.0f ? factor * shorter : factor;
}

// The numbers of a step that are the same for all values.
struct Numbers {
    float factor;
    float kept1, new1, correction1;  // Adam's
    float kept2, new2, correction2;
    float taken;  // of a new value by its average
};

__device__ __forceinline__ Numbers numbers_of(const Arguments& given) {
    Numbers y = {};
    y.factor = factor_of(given);
    y.taken = given.rates[GROUPS];
    if (!ADAM) return y;
    float* shared = reinterpret_cast<float*>(memory);
    if (thread_index() == 0) {
        const double step = *given.step;
        shared[0] = float(1.0 - pow(given.beta1, step));
        shared[1] = float(sqrt(1.0 - pow(given.beta2, step)));
    }
    sync();
    y.correction1 = shared[0];
    y.correction2 = shared[1];
    y.kept1 = float(given.beta1);
    y.new1 = float(1.0 - given.beta1);
    y.kept2 = float(given.beta2);
    y.new2 = float(1.0 - given.beta2);
    return y;
}

template <bool WHOLE>
__device__ __forceinline__ void change(
    const Arguments& given, const Part& part, const Numbers& numbers, int64 begin
) {
    const bool trained = part.group >= 0;
    const float rate = trained ? given.rates[part.group] : 0.0f;
    Four<float> values[ROUNDS], gradients[ROUNDS], firsts[ROUNDS], seconds[ROUNDS], averages[ROUNDS];
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        const int64 at = begin + (i * THREADS + thread_index()) * 4;
        values[i] = load<WHOLE>(part.value, at, part.count);
        if (AVERAGED) averages[i] = load<WHOLE>(part.average, at, part.count);
        if (!trained) continue;
        gradients[i] = gradient_of<WHOLE>(part, at, values[i], given.penalty);
        if (FIRST) firsts[i] = load<WHOLE>(part.first, at, part.count);
        if (ADAM) seconds[i] = load<WHOLE>(part.second, at, part.count);
    }
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        const int64 at = begin + (i * THREADS + thread_index()) * 4;
        for (int j = 0; j < 4 && trained; j++) {
            float& value = values[i].at[j];
            float gradient = numbers.factor < 0.0f ? 0.0f : numbers.factor * gradients[i].at[j];
            if (DECOUPLED) {
                value -= rate * given.weight_decay * value;
            } else {
                gradient += given.weight_decay * value;
            }
            if (ADAM) {
                float mean = gradient;
                if (FIRST) {
                    mean = numbers.kept1 * firsts[i].at[j] + numbers.new1 * gradient;
                    firsts[i].at[j] = mean;
                }
                float& second = seconds[i].at[j];
                second = numbers.kept2 * second + numbers.new2 * gradient * gradient;
                value -= rate / numbers.correction1 * mean / (sqrtf(second) / numbers.correction2 + given.epsilon);
            } else {
                value -= rate * gradient;
            }
        }
        if (AVERAGED) {
            for (int j = 0; j < 4; j++) averages[i].at[j] += numbers.taken * (values[i].at[j] - averages[i].at[j]);
            store<WHOLE>(part.average, at, part.count, averages[i]);
        }
        if (!trained) continue;
        store<WHOLE>(part.value, at, part.count, values[i]);
        if (part.low) store<WHOLE>(part.low, at, part.count, narrowed(values[i]));
        if (FIRST) store<WHOLE>(part.first, at, part.count, firsts[i]);
        if (ADAM) store<WHOLE>(part.second, at, part.count, seconds[i]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) change_pass(const __grid_constant__ Arguments given) {
    const Numbers numbers = numbers_of(given);
    const bool overflown = CLIPPED && numbers.factor < 0.0f;
    if (given.counting && overflown && block_index() == 0 && thread_index() == 0) *given.left_out += 1.0;
    Walk walk(given);
    for (int64 begin; walk.next(begin);) {
        const Part& part = given.parts[walk.part];
        if (begin + CHUNK <= part.count) {
            change<true>(given, part, numbers, begin);
        } else {
            change<false>(given, part, numbers, begin);
        }
    }
}
