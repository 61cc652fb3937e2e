// A training loop of one's own over LibTorch's tensors. The program brings the model and writes the loop; data,
// optimizer, schedule, precision, checkpoints and records are the run's, as `mortise train` has them.
//
//   int main(int argc, char** argv) {
//     auto run = mortise::Run::open("run.toml", argc, argv);  // it says [model.host]; the flags are those of `train`
//     MyModel model;
//     run.adopt(*model);
//     for (auto& step : run) {
//       for (auto& micro : step) {
//         at::Tensor sum = …;  // the loss, summed over micro["input_ids"] and micro["labels"]
//         micro.backward(sum, "tokens");
//       }
//       step.update();
//     }
//     return run.finish();
//   }
//
// find_package(Mortise COMPONENTS runtime) brings the target Mortise::runtime, for the LibTorch that Mortise was built
// with. All of it on one thread.
#pragma once
#include <initializer_list>
#include <string_view>

#include "mortise/runtime/program.hpp"

namespace mortise {

// A sum over the micro-batch, 0-dim, divided by how many of `unit` ("tokens", "samples", "one" or one of the data's)
// all micro-batches of the step have, and weighted. With weight 0 it is a column of the record, and trains nothing.
struct LossTerm {
  std::string_view name;
  at::Tensor sum;
  std::string_view unit = "tokens";
  double weight = 1;
};

// A micro-batch on the run's device; good until its `backward`.
class Micro {
 public:
  Micro(Program& program, mortise_call* call) : program_(program), call_(call), index_(call->micro) {}

  // A field of the data: "input_ids", "labels", "pixel_values", [B, …]. Throws std::out_of_range: there is none.
  at::Tensor operator[](std::string_view name) const {
    const Tensor t = field(batch(), name);
    if (!t) throw std::out_of_range("the data has no field `" + std::string(name) + "`");
    return torch_of(t);
  }
  bool has(std::string_view name) const { return static_cast<bool>(field(batch(), name)); }
  int64_t count(std::string_view unit) const {
    int64_t n = 0;
    check(api.batch->count(api.host, batch(), str(unit), &n));
    return n;
  }
  int index() const { return index_; }  // in its step

  // Once, with all terms of the loss: the gradients of this micro-batch go to those of the step. In an evaluation the
  // terms are only added up.
  void backward(std::initializer_list<LossTerm> terms) {
    if (is_done_) throw std::logic_error("micro.backward was called twice on one micro-batch");
    is_done_ = true;
    mortise_status status = MORTISE_OK;
    for (const LossTerm& t : terms)
      if (!status) status = api.loop->term(api.host, str(t.name), handle_of(t.sum), str(t.unit), t.weight);
    if (call_->mode != MORTISE_TRAIN) return check(status);
    program_.go_on(status);
  }
  void backward(const at::Tensor& sum, std::string_view unit) { backward({{"loss", sum, unit}}); }

 private:
  mortise_batch* batch() const {
    if (is_done_) throw std::logic_error("a micro-batch is read after its backward, when it is gone");
    return call_->batch;
  }
  Program& program_;
  mortise_call* call_;
  int index_;
  bool is_done_ = false;
  friend class Step;
};

// One step: its micro-batches, then the update.
class Step {
 public:
  explicit Step(Program& program) : program_(program) {}

  class Iterator {
   public:
    explicit Iterator(Program& program) : program_(program) { take(); }
    Micro& operator*() { return *micro_; }
    Iterator& operator++() {
      if (!micro_->is_done_) throw std::logic_error("a micro-batch was left out: micro.backward(…) on each of a step");
      take();
      return *this;
    }
    bool operator!=(std::nullptr_t) const { return micro_.has_value(); }

   private:
    void take() {
      micro_.reset();
      if (program_.at() != Program::At::kMicro) return;
      program_.bind();
      micro_.emplace(program_, program_.micro());
    }
    Program& program_;
    std::optional<Micro> micro_;
  };
  Iterator begin() { return Iterator(program_); }
  std::nullptr_t end() const { return nullptr; }

  // In this step no gradient goes to the parameters of a module, and they are not updated. Before its micro-batches.
  template <class Module>
  void freeze(const Module& module) {
    for (const at::Tensor& p : module.parameters())
      for (Adopted& a : program_.adopted)
        if (a.is(p)) a.is_frozen = true;
  }
  // Verdict, clipping, schedule, optimizers, and what is due after the step.
  void update() {
    if (program_.at() == Program::At::kMicro)
      throw std::logic_error("a step is updated when all its micro-batches went through: for (auto& micro : step)");
    if (program_.at() == Program::At::kGradients) program_.go_on();
  }
  // Steps that were begun before this one, in earlier processes of the run too.
  int64_t number() const { return number_; }

 private:
  friend class Run;
  Program& program_;
  int64_t number_ = 0;
};

class Run {
 public:
  // The run of `manifest`, or of another one that the command line names: behind the program's name stand the words of
  // `mortise train`, or another verb with its own ("resume DIR", "eval DIR"). Where there is nothing to begin with (a
  // mistake in the manifest, --help, a verb that computes nothing) the process ends here, with the exit code of that
  // verb.
  static Run open(const std::string& manifest, int argc, char** argv) {
    Run run(manifest, argc, argv);
    run.program_->go_on();
    if (run.at() == Program::At::kEnd) std::exit(run.program_->exit());
    return run;
  }
  Run(Run&&) = default;
  Run& operator=(Run&&) = delete;
  ~Run() {  // without finish(): an exception is on its way
    if (!program_) return;
    program_->leave();
    while (at() != Program::At::kEnd) program_->go_on();
  }

  // ---- before the loop ----

  // A number that the data or the manifest decided: "vocabulary", "classes", "sequence_length", … (build.h).
  std::optional<int64_t> fact(std::string_view name) const {
    must_be_before("facts are asked for");
    return Builder(program_->builder()).fact(name);
  }
  // [model.host] sizes: numbers that mean what the program takes them for.
  std::vector<int64_t> sizes() const {
    must_be_before("sizes are asked for");
    return Program::sizes();
  }
  // The parameters and floating-point buffers of a torch::nn::Module, under their names. Their values are what the run
  // begins with; then the run owns the bytes. Integer buffers stay the program's, and are in no checkpoint.
  template <class Module>
  void adopt(const Module& module) {
    for (const auto& p : module.named_parameters())
      adopt(p.key(), p.value(), p.value().dim() < 2 ? "vector" : "matrix");
    for (const auto& b : module.named_buffers())
      if (b.value().is_floating_point()) adopt(b.key(), b.value(), "buffer");
  }
  // One tensor; role: matrix vector norm embedding buffer. Under a second name it is the one that was adopted already.
  void adopt(const std::string& name, const at::Tensor& tensor, std::string_view role) {
    must_be_before("parameters are adopted");
    if (!tensor.defined() || !tensor.is_floating_point())
      throw std::invalid_argument("what is adopted as `" + name + "` is no tensor of floating-point numbers");
    for (const Adopted& a : program_->adopted)
      if (a.is(tensor)) return;
    program_->adopted.emplace_back(name, tensor, role);
  }
  // What an evaluation does with a micro-batch: it computes, and gives the terms of the loss to micro.backward.
  void evaluate_with(std::function<void(Micro&)> evaluate) {
    must_be_before("an evaluation is given");
    program_->evaluate = [evaluate = std::move(evaluate), &program = *program_](mortise_call* call) {
      Micro micro(program, call);
      evaluate(micro);
    };
  }

  // ---- the loop: until run.length, a signal, or a guard ----

  class Iterator {
   public:
    explicit Iterator(Run& run) : run_(run), step_(*run.program_) { take(); }
    Step& operator*() { return step_; }
    Iterator& operator++() {
      take();
      return *this;
    }
    bool operator!=(std::nullptr_t) const { return run_.at() != Program::At::kEnd; }

   private:
    void take() {
      run_.next();
      if (run_.at() != Program::At::kEnd) step_.number_ = clock_now().attempted;
    }
    Run& run_;
    Step step_;
  };
  Iterator begin() {
    must_be_before("the one loop of a run begins");
    return Iterator(*this);
  }
  std::nullptr_t end() const { return nullptr; }

  // Where the loop was left between two steps the run ends as if its length were reached; inside a step that is an
  // error, and the step is lost. The exit code, as of `mortise train`.
  int finish() {
    if (at() == Program::At::kStepEnd)
      check(api.loop->request(api.host, MORTISE_STOP, MORTISE_STR("the program ended its loop")));
    else program_->leave();
    while (at() != Program::At::kEnd) program_->go_on();
    return program_->exit();
  }

 private:
  Run(const std::string& manifest, int argc, char** argv) : program_(std::make_unique<Program>(manifest, argc, argv)) {}
  Program::At at() const { return program_->at(); }
  void must_be_before(const char* what) const {
    if (at() != Program::At::kDeclare) throw std::logic_error(std::string(what) + " before the loop");
  }
  void next() {
    if (at() == Program::At::kMicro || at() == Program::At::kGradients)
      throw std::logic_error("a step was not ended: step.update() behind its micro-batches");
    for (Adopted& a : program_->adopted) a.is_frozen = false;
    if (at() != Program::At::kEnd) program_->go_on();
  }

  std::unique_ptr<Program> program_;
};

}  // namespace mortise
