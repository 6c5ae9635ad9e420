// llama.cpp as the other side of `python -m tools.beside_llama`: reads lines "chats prompt new", decodes greedily
// with its own batches, and answers with milliseconds, a line each. `driver quantize FROM TO KIND` makes smaller
// files. Built against the headers that come with the library it is linked to; knows nothing of pagedchat.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

constexpr int MOST_CHATS = 8, CONTEXT_OF_A_CHAT = 1024, MOST_AT_ONCE = 2048;

double milliseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

void only_warnings(ggml_log_level level, const char* text, void*) {
  if (level >= GGML_LOG_LEVEL_WARN) std::fputs(text, stderr);
}

int quantize(const char* from, const char* to, int kind, int threads) {
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.nthread = threads;
  params.ftype = static_cast<llama_ftype>(kind);
  return static_cast<int>(llama_model_quantize(from, to, &params));
}

// The most likely token of a row of the last batch.
llama_token likeliest(llama_context* context, int row, int vocab_size) {
  const float* logits = llama_get_logits_ith(context, row);
  return static_cast<llama_token>(std::max_element(logits, logits + vocab_size) - logits);
}

struct Round {
  double first = 0.0;         // milliseconds until the first tokens are there
  std::vector<double> steps;  // and of every step behind
};

Round run(llama_context* context, int vocab_size, int chats, int prompt, int fresh, std::mt19937& random) {
  llama_memory_clear(llama_get_memory(context), true);
  llama_batch batch = llama_batch_init(MOST_AT_ONCE, 0, 1);
  const auto add = [&](llama_token token, int position, int chat, bool wanted) {
    const int at = batch.n_tokens++;
    batch.token[at] = token;
    batch.pos[at] = position;
    batch.n_seq_id[at] = 1;
    batch.seq_id[at][0] = chat;
    batch.logits[at] = wanted;
    return at;
  };
  std::vector<int> rows(chats);
  for (int chat = 0; chat < chats; chat++) {
    for (int p = 0; p < prompt; p++) rows[chat] = add(random() % vocab_size, p, chat, p + 1 == prompt);
  }
  Round round;
  for (int n = 0; n < fresh; n++) {
    const double started = milliseconds();
    if (llama_decode(context, batch) != 0) std::exit(3);
    std::vector<llama_token> next(chats);
    for (int chat = 0; chat < chats; chat++) next[chat] = likeliest(context, rows[chat], vocab_size);
    const double took = milliseconds() - started;
    if (n == 0) {
      round.first = took;
    } else {
      round.steps.push_back(took);
    }
    batch.n_tokens = 0;
    for (int chat = 0; chat < chats; chat++) rows[chat] = add(next[chat], prompt + n, chat, true);
  }
  llama_batch_free(batch);
  return round;
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = std::atoi(std::getenv("OMP_NUM_THREADS"));
  llama_log_set(only_warnings, nullptr);
  ggml_backend_load_all_from_path(std::getenv("LLAMA_LIBRARIES"));
  llama_backend_init();
  if (count == 5 && std::strcmp(arguments[1], "quantize") == 0) {
    return quantize(arguments[2], arguments[3], std::atoi(arguments[4]), threads);
  }
  llama_model* model = llama_model_load_from_file(arguments[1], llama_model_default_params());
  if (model == nullptr) return 2;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = MOST_CHATS * CONTEXT_OF_A_CHAT;
  params.n_batch = MOST_AT_ONCE;
  params.n_seq_max = MOST_CHATS;
  params.n_threads = params.n_threads_batch = threads;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return 2;
  const int vocab_size = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::mt19937 random(1);
  std::puts("ready");
  std::fflush(stdout);
  int chats = 0, prompt = 0, fresh = 0;
  while (std::scanf("%d %d %d", &chats, &prompt, &fresh) == 3) {
    Round round = run(context, vocab_size, chats, prompt, fresh, random);
    std::sort(round.steps.begin(), round.steps.end());
    std::printf("%.3f %.3f\n", round.first, round.steps.empty() ? 0.0 : round.steps[round.steps.size() / 2]);
    std::fflush(stdout);
  }
}
