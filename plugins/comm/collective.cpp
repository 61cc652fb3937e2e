#include "collective.hpp"

#include <algorithm>
#include <numeric>

namespace mortise::comm {
namespace {

constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "reduce"};

[[noreturn]] void refuse(const mortise_collective& c, const std::string& what,
                         mortise_status status = MORTISE_E_ARGUMENT) {
  throw Error(status, std::string(name_of(c)) + ": " + what);
}

Info operand(const mortise_collective& c, mortise_tensor* t, const char* which, uint32_t device) {
  if (!t) refuse(c, std::string(which) + " is NULL");
  const Info info(t);
  if (info.device != device)
    refuse(c, std::string(which) + " is not in the memory of the " + (device == MORTISE_CPU ? "CPU" : "GPU"));
  if (!(info.flags & MORTISE_CONTIGUOUS)) refuse(c, std::string(which) + " is not contiguous");
  type_of(info.dtype);
  return info;
}

// Of one side of an exchange: rows along a first dimension, as many as the ranks are given.
void check_rows(const mortise_collective& c, mortise_tensor* t, const int64_t* of_each, int64_t n, const char* which) {
  const Info info(t);
  if (info.rank == 0) refuse(c, std::string(which) + " has no rows", MORTISE_E_SHAPE);
  if (!of_each && info.size(0) % n != 0)
    refuse(c,
           std::string(which) + " has " + std::to_string(info.size(0)) + " rows, which " + std::to_string(n) +
               " ranks do not share evenly",
           MORTISE_E_SHAPE);
  if (!of_each) return;
  const auto negative = std::any_of(of_each, of_each + n, [](int64_t rows) { return rows < 0; });
  const int64_t all = std::accumulate(of_each, of_each + n, int64_t{0});
  if (negative || all != info.size(0))
    refuse(c,
           std::string(which) + " has " + std::to_string(info.size(0)) + " rows, and the ranks are to have " +
               (negative ? "less than none" : std::to_string(all)),
           MORTISE_E_SHAPE);
}

void check_exchange(const mortise_collective& c, const Info& in, const Info& out, int64_t rank, int64_t n) {
  if (!c.in_rows != !c.out_rows) refuse(c, "`in_rows` and `out_rows` are given together, or neither");
  check_rows(c, c.in, c.in_rows, n, "`in`");
  check_rows(c, c.out, c.out_rows, n, "`out`");
  if (!std::ranges::equal(in.shape().subspan(1), out.shape().subspan(1)))
    refuse(c, "rows of `in` and of `out` have other sizes", MORTISE_E_SHAPE);
  if (c.in_rows && c.in_rows[rank] != c.out_rows[rank])
    refuse(c,
           "this rank is to send itself " + std::to_string(c.in_rows[rank]) + " rows and has room for " +
               std::to_string(c.out_rows[rank]),
           MORTISE_E_SHAPE);
  if (!c.in_rows && in.size(0) != out.size(0)) refuse(c, "`in` and `out` have other sizes", MORTISE_E_SHAPE);
  if (in.numel > 0 && in.data == out.data) refuse(c, "`in` and `out` are one memory");
}

}  // namespace

at::ScalarType type_of(uint32_t dtype) {
  switch (dtype) {
#define MORTISE_DTYPE_ROW(symbol, number, bytes, name, safetensors, torch) \
  case number: return at::ScalarType::torch;
#include "mortise/dtypes.def"
#undef MORTISE_DTYPE_ROW
    default: throw Error(MORTISE_E_ARGUMENT, "no element type has the number " + std::to_string(dtype));
  }
}

const char* name_of(const mortise_collective& c) {
  if (c.kind > MORTISE_REDUCE)
    throw Error(MORTISE_E_ARGUMENT, "start: no collective has the number " + std::to_string(c.kind));
  return kNames[c.kind];
}

c10d::ReduceOp op_of(uint32_t op, const char* name) {
  switch (op) {
    case MORTISE_SUM: return c10d::ReduceOp::SUM;
    case MORTISE_MAX: return c10d::ReduceOp::MAX;
    case MORTISE_MIN: return c10d::ReduceOp::MIN;
    default: throw Error(MORTISE_E_ARGUMENT, std::string(name) + ": no reduction has the number " + std::to_string(op));
  }
}

const char* op_name(uint32_t op) { return op == MORTISE_SUM ? "sum" : op == MORTISE_MAX ? "max" : "min"; }

void check_fit(const mortise_collective& c, int64_t rank, int64_t n, uint32_t device) {
  const Info out = operand(c, c.out, "`out`", device);
  if (reduces(c)) {
    op_of(c.op, name_of(c));
    if (out.dtype == MORTISE_BOOL && c.op == MORTISE_SUM) refuse(c, "booleans have no sum");
  }
  if (has_root(c) && (c.root < 0 || c.root >= n))
    refuse(c, "`root` is " + std::to_string(c.root) + ", of " + std::to_string(n) + " ranks");
  if (!reads_in(c)) return;
  const Info in = operand(c, c.in, "`in`", device);
  if (in.dtype != out.dtype) refuse(c, "`in` and `out` are of two element types", MORTISE_E_SHAPE);
  if (c.kind == MORTISE_ALL_TO_ALL) return check_exchange(c, in, out, rank, n);
  const bool scatters = c.kind == MORTISE_REDUCE_SCATTER;
  const int64_t whole = scatters ? in.numel : out.numel, part = scatters ? out.numel : in.numel;
  if (whole != n * part)
    refuse(c,
           std::string(scatters ? "`in`" : "`out`") + " has " + std::to_string(whole) + " elements and " +
               (scatters ? "`out`" : "`in`") + " " + std::to_string(part) + "; " + std::to_string(n) + " ranks need " +
               std::to_string(n * part),
           MORTISE_E_SHAPE);
}

Rows::Rows(mortise_tensor* t, const int64_t* given, int64_t n) {
  const Info info(t);
  rows = info.size(0);
  elements = 1;
  for (const int64_t size : info.shape().subspan(1)) elements *= size;
  if (given) of_each.assign(given, given + n);
  else of_each.assign(static_cast<size_t>(n), rows / n);
}

}  // namespace mortise::comm
