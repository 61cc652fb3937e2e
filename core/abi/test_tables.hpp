// What tests of both edges ask of their tables.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "core/abi/edge.hpp"

namespace mortise::testing {

// A table is its size, and behind it functions alone.
inline void expect_no_hole(const Edge& edge) {
  for (const char* id : {"autograd", "batch", "build", "call", "config", "grads", "log", "loop", "model", "ops",
                         "parallel", "params", "random", "state", "tensor"}) {
    const auto* table = static_cast<const char*>(edge.table("mortise." + std::string(id) + "/0"));
    ASSERT_NE(table, nullptr) << id;
    uint32_t bytes = 0;
    std::memcpy(&bytes, table, sizeof bytes);
    for (size_t at = sizeof(void*); at < bytes; at += sizeof(void*)) {
      void* member = nullptr;
      std::memcpy(&member, table + at, sizeof member);
      EXPECT_NE(member, nullptr) << id << ", member " << at / sizeof(void*);
    }
  }
}

}  // namespace mortise::testing
