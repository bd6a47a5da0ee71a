// What the chip itself offers: everything here is an instruction or two.

typedef unsigned short bf16;
typedef long long int64;

struct alignas(16) Words {
    unsigned x, y, z, w;
};

extern __shared__ __align__(16) unsigned char memory[];

// Of the last warp, which as a rule has no unit to look after, one thread speaks and listens for the block.
constexpr int SPEAKER = THREADS - 32;

__device__ __forceinline__ int thread_index() { return threadIdx.x; }
__device__ __forceinline__ int block_index() { return blockIdx.x; }
__device__ __forceinline__ void sync() { __syncthreads(); }
__device__ __forceinline__ void sync_warp() { __syncwarp(); }

__device__ __forceinline__ float exponential(float x) { return __expf(x); }
__device__ __forceinline__ float quotient(float x, float y) { return __fdividef(x, y); }

__device__ __forceinline__ float widened(bf16 x) { return __uint_as_float(unsigned(x) << 16); }
__device__ __forceinline__ bf16 narrowed(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

// Four numbers in one access; of a struct that is stored the compiler would make four.
__device__ __forceinline__ void store_four(float* to, const float (&x)[4]) {
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}
__device__ __forceinline__ void store_four(bf16* to, const bf16 (&x)[4]) {
    asm volatile("st.global.v4.u16 [%0], {%1, %2, %3, %4};" ::"l"(to), "h"(x[0]), "h"(x[1]), "h"(x[2]), "h"(x[3])
                 : "memory");
}

// Of what other blocks write while this kernel runs: from the L2.
__device__ __forceinline__ Words load_shared_state(const bf16* from) {
    Words y;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(y.x), "=r"(y.y), "=r"(y.z), "=r"(y.w)
                 : "l"(from)
                 : "memory");
    return y;
}

__device__ __forceinline__ int load_flag(const int* from) {
    int y;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(y) : "l"(from) : "memory");
    return y;
}

// 16 bytes on their way into shared memory, and the wait of a warp for all that its lanes sent for.
__device__ __forceinline__ void send_for(unsigned char* to, const unsigned char* from) {
    const unsigned at = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
__device__ __forceinline__ void wait_for_sent() {
    asm volatile("cp.async.wait_all;" ::: "memory");
    sync_warp();
}

// One product of a 16 × 16 tile of weights (a) and 16 × 8 of the state (b), added to c.
__device__ __forceinline__ void multiply_add(
    float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1
) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ int most_of_warp(int x) { return __reduce_max_sync(0xffffffffu, x); }
__device__ __forceinline__ void raise_shared(int* to, int x) { atomicMax(to, x); }
__device__ __forceinline__ void raise_global(int* to, int x) {
    asm volatile("red.relaxed.gpu.global.max.s32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

// By the speaker, behind a barrier: all that the block wrote before is seen with it.
__device__ __forceinline__ void announce(unsigned* counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

// All that the threads of this block wrote before is seen by whoever has waited for the arrival.
__device__ __forceinline__ void arrive(unsigned* counter) {
    sync();
    if (thread_index() == SPEAKER) announce(counter);
}

// Counters only grow: `target` is the number of arrivals. PTX's memory model asks for an acquire here. It would throw
// away the L1, where registers may be spilled, and do no more: what is read after is read from the L2, by loads that
// are not issued before the barrier. So nothing of other blocks may be read but by load_shared_state and load_flag.
__device__ __forceinline__ void wait(const unsigned* counter, unsigned target) {
    if (thread_index() == SPEAKER) {
        long long polls = 0;
        while (unsigned(load_flag(reinterpret_cast<const int*>(counter))) < target) {
            if (PATIENCE > 0 && ++polls > PATIENCE) __trap();
        }
    }
    sync();
}
