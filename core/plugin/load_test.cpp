#include "core/plugin/load.hpp"

#include <elf.h>
#include <sys/stat.h>

#include <cstring>
#include <deque>

#include "core/plugin/test_fixtures.hpp"

namespace mortise {
namespace {

Diagnostic refusal(const PluginInfo& info, const std::string& helper = "") {
  return failure_of([&] { load_plugin(info, helper); });
}
Diagnostic refusal(const std::string& name, const std::string& helper = "") { return refusal(fixture(name), helper); }

LoadFrom file_of(const std::string& name) { return {fixture(name).library, -1}; }

// The good fixture with some of its bytes changed, in a file of its own.
PluginInfo changed(const TemporaryFolder& folder, const std::function<void(std::string&)>& change) {
  PluginInfo info = fixture("good");
  std::string bytes = read_file(info.library);
  change(bytes);
  info.library = folder / "fixture.good.so";
  write_file(info.library, bytes);
  return info;
}

TEST(Load, TakesAGoodPlugin) {
  const PluginInfo info = fixture("good");
  const auto [plugin, library] = load_plugin(info, MORTISE_PROBE);
  EXPECT_EQ(std::string_view(plugin->manifest.ptr, plugin->manifest.len), info.toml_text);
  EXPECT_EQ(library, read_file(info.library));
  EXPECT_EQ(load_plugin(info, "").descriptor, plugin) << "the same library, once in this process";
}

TEST(Load, HasOneFormOfRefusal) {
  const Diagnostic d = refusal("no_entry");
  EXPECT_EQ(d.at, fixture("no_entry").library);
  EXPECT_EQ(d.effect, "it was not loaded");
  EXPECT_EQ(d.plugin, "fixture.no_entry");
  EXPECT_EQ(d.exit, kExitPlugin);
  EXPECT_FALSE(d.fixes.empty());
}

// ---- the file ----

TEST(Load, SaysThatALibraryIsMissing) {
  PluginInfo info = fixture("good");
  info.library += ".not";
  const Diagnostic d = refusal(info);
  EXPECT_EQ(d.code, "plugin_missing");
  EXPECT_EQ(d.message, "fixture.good has a plugin.toml, but no library");
}

TEST(Load, RefusesACutFile) {
  const TemporaryFolder folder;
  const Diagnostic d = refusal(changed(folder, [](std::string& bytes) { bytes.resize(1000); }));
  EXPECT_EQ(d.code, "not_elf");
  EXPECT_EQ(d.message, "fixture.good is no whole shared library: it is cut short");
}

TEST(Load, RefusesAScript) {
  const TemporaryFolder folder;
  const Diagnostic d = refusal(changed(folder, [](std::string& bytes) { bytes = "#!/bin/sh\n"; }));
  EXPECT_EQ(d.code, "not_elf");
  EXPECT_EQ(d.message, "fixture.good is no whole shared library: it does not begin as an ELF file does");
}

TEST(Load, RefusesAnotherMachine) {
  const TemporaryFolder folder;
  const Diagnostic d = refusal(
      changed(folder, [](std::string& bytes) { bytes[offsetof(Elf64_Ehdr, e_machine)] = static_cast<char>(EM_386); }));
  EXPECT_EQ(d.code, "wrong_machine");
  EXPECT_EQ(d.message.substr(0, 66), "fixture.good is built for another machine (ELF number 3); this is ");
}

TEST(Load, RefusesAProgram) {
  const TemporaryFolder folder;
  const Diagnostic d =
      refusal(changed(folder, [](std::string& bytes) { bytes[offsetof(Elf64_Ehdr, e_type)] = ET_EXEC; }));
  EXPECT_EQ(d.code, "not_elf");
  EXPECT_EQ(d.message, "fixture.good is an object file or a program, no shared library");
}

TEST(Load, RefusesANewerGlibc) {
  const TemporaryFolder folder;
  const Diagnostic d = refusal(changed(folder, [](std::string& bytes) {
    const size_t at = bytes.find("GLIBC_2.");
    ASSERT_NE(at, bytes.npos);
    bytes[at + 6] = '9';
  }));
  EXPECT_EQ(d.code, "glibc_too_old");
  EXPECT_EQ(d.message.substr(0, 29), "fixture.good needs glibc 9.2.") << d.message;
}

TEST(Load, RefusesWhatIsNoFileWithoutWaitingForIt) {
  const TemporaryFolder folder;
  PluginInfo info = fixture("good");
  info.library = folder / "fixture.good.so";
  ASSERT_EQ(mkfifo(info.library.c_str(), 0600), 0);
  EXPECT_EQ(refusal(info).message, "fixture.good is no whole shared library: it is no regular file of at most 4 GiB");
}

// A plugin that exchanges itself for another one while it is probed: what was probed is what is loaded.
TEST(Load, OpensTheFileOnce) {
  const TemporaryFolder folder;
  PluginInfo info = fixture("exchanges");
  const std::string own = read_file(info.library);
  info.library = folder / "fixture.exchanges.so";
  write_file(info.library, own);
  ASSERT_EQ(setenv("FIXTURE_PLACE", info.library.c_str(), 1), 0);
  ASSERT_EQ(setenv("FIXTURE_OTHER", fixture("crashes").library.c_str(), 1), 0);
  const LoadedPlugin loaded = load_plugin(info, MORTISE_PROBE);
  EXPECT_EQ(read_file(info.library), read_file(fixture("crashes").library)) << "it was exchanged";
  EXPECT_EQ(loaded.library, own);
  EXPECT_EQ(std::string_view(loaded.descriptor->manifest.ptr, loaded.descriptor->manifest.len), info.toml_text);
}

TEST(Load, FindsLibrariesBesideAPluginThatAsksForThem) {
  PluginInfo info = fixture("beside");
  info.links = {"libacme.so*"};
  EXPECT_NE(load_plugin(info, MORTISE_PROBE).descriptor, nullptr);
}

TEST(Image, CannotBeChangedAnyMore) {
  const LibraryImage image(fixture("good"));
  ASSERT_EQ(image.not_from_memory(), "");
  EXPECT_EQ(pwrite(image.file(), "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(image.file(), 0), -1);
}

// ---- what it exports and imports ----

TEST(Load, RefusesALibraryThatIsNoPlugin) {
  const Diagnostic d = refusal("no_entry");
  EXPECT_EQ(d.code, "not_a_plugin");
  EXPECT_EQ(d.message, "fixture.no_entry does not export `mortise_plugin_v0`");
}

TEST(Load, RefusesAnotherMajorByItsName) {
  const Diagnostic d = refusal("other_entry");
  EXPECT_EQ(d.code, "built_for_another");
  EXPECT_EQ(d.message, "fixture.other_entry exports `mortise_plugin_v9`; this host asks for `mortise_plugin_v0`");
}

TEST(Load, RefusesFurtherExports) {
  const Diagnostic d = refusal("exports");
  EXPECT_EQ(d.code, "exports_too_much");
  EXPECT_NE(d.message.find("`helper_one`"), d.message.npos) << d.message;
  EXPECT_NE(d.message.find("`helper_two`"), d.message.npos) << d.message;
}

TEST(Load, RefusesALibraryThatItsTierDoesNotAllow) {
  const Diagnostic d = refusal("needs_acme");
  EXPECT_EQ(d.code, "imports_not_allowed");
  EXPECT_EQ(d.message, "fixture.needs_acme needs libacme.so, which a portable plugin may not");
  EXPECT_EQ(d.fixes.at(0), "[links] allow = [\"libacme.so\"] in its plugin.toml, or link it statically");
}

TEST(Load, TakesALibraryThatLinksAllows) {
  PluginInfo info = fixture("needs_acme");
  info.links = {"libacme.so*"};
  EXPECT_NE(load_plugin(info, "").descriptor, nullptr);
}

TEST(Load, RefusesLibTorchToAPortablePlugin) {
  const Diagnostic d = refusal("needs_torch");
  EXPECT_EQ(d.code, "imports_not_allowed");
  EXPECT_EQ(d.message, "fixture.needs_torch needs libtorch_cpu.so, which a portable plugin may not");
  EXPECT_NE(d.fixes.at(0).find("tier = \"native\""), std::string::npos);
}

TEST(Load, TakesLibTorchFromANativePlugin) {
  PluginInfo info = fixture("needs_torch");
  info.tier = "native";
  EXPECT_NO_THROW(check_elf(info, read_file(info.library)));
}

// Without the library in its list, the host's own LibTorch would be found: the name is what gives it away.
TEST(Load, RefusesCallsOfLibTorchByName) {
  const Diagnostic d = refusal("calls_torch");
  EXPECT_EQ(d.code, "imports_not_allowed");
  EXPECT_EQ(d.message,
            "fixture.calls_torch calls LibTorch's `at::add(at::Tensor const&, at::Tensor const&, c10::Scalar const&)`, "
            "which a portable plugin may not");
}

TEST(Load, KnowsEveryNameSpaceOfLibTorchAndNoOther) {
  for (const auto& [name, called] :
       {std::pair("calls_c10", "c10::Tensor::run()"), std::pair("calls_torch_jit", "torch::jit::run()"),
        std::pair("calls_caffe2", "caffe2::run()")}) {
    const Diagnostic d = refusal(name);
    EXPECT_EQ(d.code, "imports_not_allowed") << name;
    EXPECT_NE(d.message.find("calls LibTorch's `" + std::string(called) + "`"), d.message.npos) << d.message;
  }
  const PluginInfo info = fixture("calls_format");  // format::run() has `at::` in its name
  EXPECT_NO_THROW(check_elf(info, read_file(info.library)));
}

// ---- the probe ----

TEST(Probe, NamesTheSignal) {
  const Diagnostic d = refusal("crashes", MORTISE_PROBE);
  EXPECT_EQ(d.code, "probe_crashed");
  EXPECT_EQ(d.message, "fixture.crashes crashes while it is loaded: signal 6 (Aborted); it said: the sky is falling");
}

TEST(Probe, DoesNotWaitForever) {
  const Diagnostic d =
      failure_of([] { probe(fixture("hangs"), file_of("hangs"), MORTISE_PROBE, std::chrono::milliseconds(300)); });
  EXPECT_EQ(d.code, "probe_timed_out");
}

TEST(Probe, NoticesAConstructorThatExits) {
  const Diagnostic d = refusal("leaves", MORTISE_PROBE);
  EXPECT_EQ(d.code, "probe_silent");
  EXPECT_EQ(d.message, "fixture.leaves ends the process while it is loaded: exit code 3");
}

// Asked alone: whoever believes it loads the library here, and that ends this process with 0.
TEST(Probe, IsNotFooledByAForgedAnswer) {
  const Diagnostic d = failure_of([] { probe(fixture("forges"), file_of("forges"), MORTISE_PROBE); });
  EXPECT_EQ(d.code, "probe_silent");
  EXPECT_EQ(d.message, "fixture.forges answered the probe in our place, with another number");
}

TEST(Probe, DoesNotWaitForWhatAPluginLeavesBehind) {
  const auto begin = std::chrono::steady_clock::now();
  probe(fixture("spawns"), file_of("spawns"), MORTISE_PROBE);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(Probe, PassesOnTheLoadersWords) {
  const Diagnostic d = refusal("calls_nobody", MORTISE_PROBE);
  EXPECT_EQ(d.code, "load_failed");
  EXPECT_NE(d.message.find("undefined symbol: no_such_function"), d.message.npos) << d.message;
  EXPECT_EQ(d.fixes.at(0).substr(0, 33), "link the library that has it: -lm");
}

TEST(Probe, SaysWhenItsHelperIsMissing) {
  const Diagnostic d = refusal("hangs", "/nowhere/mortise-probe");
  EXPECT_EQ(d.code, "probe_silent");
  EXPECT_EQ(d.message, "mortise-probe does not start: No such file or directory");
}

// The good fixture as two plugins that were never loaded here: a byte at the end makes other bytes of it.
struct ProbeAhead : testing::Test {
  PluginInfo another(const std::string& id) {
    PluginInfo info = changed(folders.emplace_back(), [&](std::string& bytes) { bytes += static_cast<char>(id[0]); });
    info.schema.id = id;
    return info;
  }
  std::deque<TemporaryFolder> folders;
  const PluginInfo one = another("1.one"), two = another("2.two");
};

TEST_F(ProbeAhead, IsAllThatASoundPluginNeeds) {
  ProbedLibraries probed = probe_ahead({&one, &two}, MORTISE_PROBE);
  ASSERT_EQ(probed.size(), 2U);
  EXPECT_NE(load_plugin(one, "/nowhere/mortise-probe", probed).descriptor, nullptr);
  EXPECT_EQ(probed.size(), 1U) << "what is loaded is taken";
  EXPECT_TRUE(probe_ahead({&one}, MORTISE_PROBE).empty()) << "it is loaded";
}

TEST_F(ProbeAhead, VouchesForNoneIfOneIsAtFault) {
  for (const char* bad : {"crashes", "leaves", "forges", "null_descriptor", "calls_nobody", "no_entry"}) {
    const PluginInfo other = fixture(bad);
    EXPECT_TRUE(probe_ahead({&two, &other}, MORTISE_PROBE).empty()) << bad;
    EXPECT_TRUE(probe_ahead({&other, &two}, MORTISE_PROBE).empty()) << bad;
  }
  EXPECT_TRUE(probe_ahead({&two}, "/nowhere/mortise-probe").empty());
  EXPECT_EQ(probe_ahead({&two}, MORTISE_PROBE).size(), 1U);
}

// ---- the handshake: the probe and the host say the same ----

class Handshake : public testing::TestWithParam<std::string> {};

TEST_P(Handshake, RefusesNoDescriptor) {
  const Diagnostic d = refusal("null_descriptor", GetParam());
  EXPECT_EQ(d.code, "handshake_failed");
  EXPECT_EQ(d.message, "fixture.null_descriptor: mortise_plugin_v0 returned NULL");
}

TEST_P(Handshake, RefusesAHoleInTheDescriptor) {
  const Diagnostic d = refusal("no_destroy", GetParam());
  EXPECT_EQ(d.code, "handshake_failed");
  EXPECT_EQ(d.message, "fixture.no_destroy: its descriptor has no `destroy`");
}

TEST_P(Handshake, RefusesAnotherAbi) {
  EXPECT_EQ(refusal("newer", GetParam()).message, "fixture.newer is built for ABI 0.99; this is 0.2");
  EXPECT_EQ(refusal("newer", GetParam()).code, "built_for_another");
  EXPECT_EQ(refusal("other_major", GetParam()).message, "fixture.other_major is built for ABI 7.2; this is 0.2");
}

TEST_P(Handshake, RefusesAnotherManifest) {
  const Diagnostic d = refusal("other_toml", GetParam());
  EXPECT_EQ(d.code, "manifest_differs");
  EXPECT_EQ(d.message, "fixture.other_toml carries another plugin.toml than the one beside it; they part in line 2");
}

// One letter is another plugin.toml, too.
TEST_P(Handshake, RefusesAnotherManifestOfTheSameLength) {
  PluginInfo info = fixture("good");
  info.toml_text[info.toml_text.size() / 2] ^= 1;
  const Diagnostic d = failure_of([&] { load_plugin(info, GetParam()); });
  EXPECT_EQ(d.code, "manifest_differs");
}

INSTANTIATE_TEST_SUITE_P(, Handshake, testing::Values("", MORTISE_PROBE),
                         [](const auto& param) { return param.param.empty() ? "Alone" : "AfterTheProbe"; });

TEST(Load, BelievesTheAbiOfAPluginTomlBeforeAnyCodeRuns) {
  PluginInfo info = fixture("asks_newer");
  info.abi = "0.99";
  EXPECT_EQ(refusal(info).message, "fixture.asks_newer asks for ABI 0.99; this Mortise is older and has 0.2");
}

TEST(Load, PassesOnTheLoadersWords) {
  const Diagnostic d = refusal("calls_nobody");
  EXPECT_EQ(d.code, "load_failed");
  EXPECT_NE(d.message.find("undefined symbol: no_such_function"), d.message.npos) << d.message;
  EXPECT_EQ(d.fixes.at(0).substr(0, 33), "link the library that has it: -lm");
  EXPECT_EQ(d.message.find("dlerror"), d.message.npos) << d.message;
}

}  // namespace
}  // namespace mortise
