// Behind a pass, of name PASS: all blocks at once, a thread for each of theirs. Shared memory starts as NaN.

struct Start {
    const Arguments* given;
    Block* block;
    int index, thread;
};

static void* run_thread(void* from) {
    const Start& start = *static_cast<Start*>(from);
    own_thread = start.thread;
    own_block = start.index;
    block = start.block;
    memory = start.block->memory;
    PASS(*start.given);
    return nullptr;
}

extern "C" void run(const Arguments* given, int count, int bytes) {
    std::vector<Block> blocks(count);
    std::vector<Start> starts;
    for (int i = 0; i < count; i++) {
        pthread_barrier_init(&blocks[i].barrier, nullptr, THREADS);
        for (Warp& warp : blocks[i].warps) pthread_barrier_init(&warp.barrier, nullptr, 32);
        blocks[i].memory = static_cast<unsigned char*>(aligned_alloc(16, (bytes + 15) / 16 * 16));
        memset(blocks[i].memory, 0xff, bytes);
        for (int t = 0; t < THREADS; t++) starts.push_back({given, &blocks[i], i, t});
    }
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 18);
    std::vector<pthread_t> threads(starts.size());
    for (size_t i = 0; i < starts.size(); i++) {
        if (pthread_create(&threads[i], &small, run_thread, &starts[i]) != 0) abort();
    }
    for (pthread_t thread : threads) pthread_join(thread, nullptr);
    for (Block& each : blocks) free(each.memory);
}
