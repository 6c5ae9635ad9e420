// Runs kernels on copies of a caller's memory: reads what there is to do from its input, as `program.py` writes it,
// and writes the memory back.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*Kernel)(int64_t *args, int64_t first, int64_t last);

extern Kernel kernels[];

enum { MOST_ARGUMENTS = 64 };

static void read_all(void *into, size_t size) {
    if (size > 0 && fread(into, 1, size, stdin) != size) exit(0);  // the caller is gone
}

static int64_t read_word(void) {
    int64_t word;
    read_all(&word, sizeof word);
    return word;
}

static void run_job(char **memory) {
    int64_t kernel = read_word(), units = read_word(), chunk = read_word(), count = read_word();
    int64_t args[MOST_ARGUMENTS] = {0};
    if (count > MOST_ARGUMENTS) abort();
    for (int64_t i = 0; i < count; i++) {
        int64_t where = read_word(), word = read_word();
        args[i] = where < 0 ? word : (int64_t)(memory[where] + word);
    }
    for (int64_t first = 0; first < units; first += chunk) {
        int64_t last = first + chunk < units ? first + chunk : units;
        kernels[kernel](args, first, last);
    }
}

int main(void) {
    for (;;) {
        int64_t num_pieces = read_word();
        char **memory = calloc(num_pieces + 1, sizeof *memory);
        int64_t *sizes = calloc(num_pieces + 1, sizeof *sizes);
        for (int64_t i = 0; i < num_pieces; i++) {
            sizes[i] = read_word();
            memory[i] = aligned_alloc(64, (sizes[i] + 127) / 64 * 64);
            read_all(memory[i], sizes[i]);
        }
        int64_t num_jobs = read_word();
        for (int64_t i = 0; i < num_jobs; i++) run_job(memory);
        for (int64_t i = 0; i < num_pieces; i++) {
            fwrite(memory[i], 1, sizes[i], stdout);
            free(memory[i]);
        }
        fflush(stdout);
        free(memory);
        free(sizes);
    }
}
