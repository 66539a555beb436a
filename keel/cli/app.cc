#include "keel/cli/app.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>
#include <system_error>

#include "keel/base/config_suggest.h"
#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/cli/interrupt.h"
#include "keel/cli/verbs.h"

namespace keel::cli {
namespace {

void say(const std::string& message) { std::fprintf(stderr, "keel: %s\n", message.c_str()); }

// libtorch and the standard library report a full machine by text or error number.
bool is_resource_failure(const std::exception& e) {
  if (const auto* system = dynamic_cast<const std::system_error*>(&e)) {
    const std::error_code code = system->code();
    return code == std::errc::no_space_on_device || code == std::errc::not_enough_memory ||
           code == std::errc::too_many_files_open || code == std::errc::read_only_file_system ||
           code == std::errc::resource_unavailable_try_again;
  }
  return std::string(e.what()).find("can't allocate memory") != std::string::npos;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// CLI11 knows nothing of the [key=value ...] that verbs take.
class VerbFormatter : public CLI::Formatter {
 public:
  explicit VerbFormatter(const char* usage) : usage_(usage) {}
  std::string make_usage(const CLI::App*, std::string) const override {
    return std::string("Usage: ") + usage_ + "\n";
  }

 private:
  const char* usage_;
};

const Verb& find_verb(const std::string& name) {
  std::vector<std::string> names;
  for (const Verb& v : verbs()) {
    if (name == v.name) return v;
    names.push_back(v.name);
  }
  const std::string near = nearest_name(name, names);
  throw_invalid("[keel] expected a verb, got {}; try {}", name,
                near.empty() ? "'keel --help'" : "'keel " + near + "'");
}

void define_program(CLI::App& app, std::string& log_level) {
  app.name("keel");
  app.description("Keel post-trains language models with reinforcement learning.");
  app.footer(
      "'keel VERB --help' shows a verb's options and an example.\n"
      "Exit codes: 0 done, 1 a bug in keel, 2 wrong input, 3 no memory or disk left, 4 another "
      "rank\n"
      "failed, 130 interrupted (finished steps are saved).");
  app.set_version_flag("--version", std::string("keel ") + KEEL_VERSION, "show the version");
  app.set_help_flag("-h,--help", "show this help");
  app.add_option("--log-level", log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  app.require_subcommand(0, 1);
}

int run_parsed(int argc, const char* const* argv) {
  CLI::App app;
  std::string log_level = "info";
  define_program(app, log_level);
  // The first word that is no option must be a verb; CLI11 would only say that it was unexpected.
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--log-level") {
      ++i;
    } else if (argv[i][0] != '-') {
      find_verb(argv[i]);
      break;
    }
  }
  std::vector<std::pair<CLI::App*, Action>> actions;
  for (const Verb& verb : verbs()) {
    CLI::App* sub = app.add_subcommand(verb.name, verb.help)->group(verb.group);
    sub->formatter(std::make_shared<VerbFormatter>(verb.usage));
    sub->footer(std::string("Example: ") + verb.example);
    actions.emplace_back(sub, verb.define(*sub));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help and --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    const std::string verb =
        app.get_subcommands().empty() ? "keel" : "keel " + app.get_subcommands()[0]->get_name();
    throw_invalid("[{}] expected options as in '{} --help', got: {}", verb, verb,
                  first_line(e.what()));
  }
  static const bool once = (init_log(log_level), true);  // tests run the program several times
  static_cast<void>(once);
  for (const auto& [sub, action] : actions) {
    if (sub->parsed()) return action();
  }
  std::fputs(app.help().c_str(), stdout);
  return 0;
}

}  // namespace

int run_guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& e) {
    say(e.what());
    return exit_code(e.kind());
  } catch (const InternalError& e) {
    say(first_line(e.what()) + "\nkeel: this is a bug in keel; please report it with this line");
    return 1;
  } catch (const std::bad_alloc&) {
    say("[memory] expected enough memory, got none left; try fewer or shorter sequences at once");
    return exit_code(ErrorKind::kResource);
  } catch (const std::exception& e) {
    if (is_resource_failure(e)) {
      say("[resource] expected enough memory and disk, got: " + first_line(e.what()));
      return exit_code(ErrorKind::kResource);
    }
    say("unexpected failure: " + first_line(e.what()) +
        "\nkeel: this is a bug in keel; please report it with this line");
    return 1;
  }
}

int run_program(int argc, const char* const* argv) {
  install_interrupt_handler();
  return run_guarded([&] { return run_parsed(argc, argv); });
}

}  // namespace keel::cli
