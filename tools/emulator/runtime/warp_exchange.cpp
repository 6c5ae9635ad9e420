// Shuffles and votes.

#include <string.h>

#include "barriers.h"
#include "failure.h"
#include "grid.h"

namespace emulator {
namespace {

struct Vote {
  bool yes;
  uint32_t result;
};

void count_votes(void* const* payloads, uint32_t) {
  uint32_t result = 0;
  for (int lane = 0; lane < WARP_SIZE; lane++) {
    if (payloads[lane] && static_cast<Vote*>(payloads[lane])->yes) result |= 1u << lane;
  }
  for (int lane = 0; lane < WARP_SIZE; lane++) {
    if (payloads[lane]) static_cast<Vote*>(payloads[lane])->result = result;
  }
}

struct Exchange {
  char given[16], taken[16];
  unsigned source;
  bool exists;
};

void exchange(void* const* payloads, uint32_t) {
  for (int lane = 0; lane < WARP_SIZE; lane++) {
    Exchange* own = static_cast<Exchange*>(payloads[lane]);
    if (!own) continue;
    const Exchange* other = static_cast<Exchange*>(payloads[own->source % WARP_SIZE]);
    own->exists = other != nullptr;
    if (other) memcpy(own->taken, other->given, sizeof(own->taken));
  }
}

}  // namespace

uint32_t vote_of_warp(uint32_t mask, bool vote, Site site) {
  current->site = site;
  Vote payload = {vote, 0};
  meet(mask, &payload, count_votes);
  return payload.result;
}

void shuffle(uint32_t mask, void* value, size_t bytes, unsigned source, Site site) {
  current->site = site;
  Exchange payload = {};
  if (bytes > sizeof(payload.given)) fail("a shuffle of more than 16 bytes");
  memcpy(payload.given, value, bytes);
  payload.source = source;
  meet(mask, &payload, exchange);
  if (!payload.exists) fail("a shuffle from a lane that is not in the mask");
  memcpy(value, payload.taken, bytes);
}

}  // namespace emulator
