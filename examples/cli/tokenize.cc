// linnet tokenize: text to ids and back.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/file_mapping.h"
#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/output.h"

namespace linnet::cli {
namespace {

struct Options {
  std::string model, text, file;
  bool has_text = false;
  bool decode = false;
  bool add_special = false;
  bool plain = false;
  bool json = false;
};

Status ReadInput(const Options& options, std::string* text, Diagnostic* diagnostic) {
  if (options.has_text) {
    *text = options.text;
    return Status::Ok();
  }
  if (!options.file.empty()) {
    LINNET_ASSIGN_OR_RETURN(const FileMapping file, FileMapping::Open(options.file, diagnostic));
    text->assign(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    return Status::Ok();
  }
  char buffer[1 << 16];
  size_t count = 0;
  while ((count = std::fread(buffer, 1, sizeof(buffer), stdin)) > 0) {
    text->append(buffer, count);
    if (text->size() > Tokenizer::kMaxTextBytes) {
      return Fail(diagnostic, StatusCode::kInvalidArgument, "the text is too long",
                  "standard input: expected at most %zu bytes", Tokenizer::kMaxTextBytes);
    }
  }
  if (std::ferror(stdin) == 0) return Status::Ok();
  return Fail(diagnostic, StatusCode::kIoError, "cannot read", "standard input");
}

Status Decode(const Options& options, const Tokenizer& tokenizer, const std::string& input, Diagnostic* diagnostic) {
  std::vector<int64_t> numbers;
  if (!ParseNumbers(input, 0, tokenizer.vocab_size() - 1, &numbers)) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "no list of ids",
                "ids: expected numbers from 0 to %d with commas or spaces between them, found \"%.60s\"",
                tokenizer.vocab_size() - 1, input.c_str());
  }
  const std::vector<int32_t> ids(numbers.begin(), numbers.end());
  const std::string text = tokenizer.Decode(ids, false);
  if (options.json) {
    PrintJson({{"text", text}, {"count", ids.size()}});
  } else {
    Print(text);  // exactly, without a newline of ours
  }
  return Status::Ok();
}

Status Encode(const Options& options, const Tokenizer& tokenizer, const std::string& input, Diagnostic* diagnostic) {
  std::vector<int32_t> ids;
  LINNET_RETURN_IF_ERROR(tokenizer.Encode(input, {options.add_special, !options.plain}, &ids, diagnostic));
  if (options.json) {
    nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
    for (const int32_t id : ids) tokens.push_back(std::string(tokenizer.TokenText(id)));
    PrintJson({{"count", ids.size()}, {"ids", ids}, {"tokens", tokens}});
    return Status::Ok();
  }
  std::string line;
  for (const int32_t id : ids) {
    if (!line.empty()) line += ',';
    line += std::to_string(id);
  }
  Print(line + "\n");
  return Status::Ok();
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(formats::ModelFile file, formats::ModelFile::Open(options.model, diagnostic));
  LINNET_ASSIGN_OR_RETURN(Tokenizer tokenizer, OpenTokenizer(file, options.model, diagnostic));
  std::string input;
  LINNET_RETURN_IF_ERROR(ReadInput(options, &input, diagnostic));
  return options.decode ? Decode(options, tokenizer, input, diagnostic) : Encode(options, tokenizer, input, diagnostic);
}

}  // namespace

void AddTokenize(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = commands.Add(
      "tokenize", "Turn text into token ids, or ids into text; reads standard input where no text is given",
      "linnet tokenize model.linnet \"Hello world\"\n  linnet tokenize model.linnet --decode 9906,1917");
  AddModelArgument(command, &options->model);
  CLI::Option* text =
      command->add_option("text", options->text, "The text, or the ids with --decode")->type_name("TEXT");
  command->add_option("-f,--file", options->file, "Read the text or the ids from this file")
      ->excludes(text)
      ->type_name("FILE");
  command->add_flag("--decode", options->decode, "Turn ids into text, special tokens included");
  command->add_flag("--special", options->add_special, "Put the model's beginning and end tokens around the text");
  command->add_flag("--plain", options->plain, "Recognize no special tokens inside the text");
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options, text](Diagnostic* diagnostic) {
    options->has_text = text->count() > 0;
    return Run(*options, diagnostic);
  });
}

}  // namespace linnet::cli
