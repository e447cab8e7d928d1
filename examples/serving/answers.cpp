#include "examples/serving/answers.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "examples/serving/nearest.hpp"

namespace serving {
namespace {

using Json = nlohmann::ordered_json;
// The answer, or what is wrong with the request.
template <class T>
using OrRefusal = tl::expected<T, std::string>;

constexpr std::size_t most_neighbours = 1000;

// --- parameters ---

// Fails if the request has a parameter that is none of these, or one of them twice.
OrRefusal<void> check_names(const httplib::Request& request,
                            std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : request.params) {
    if (std::ranges::find(known, name) == known.end())
      return tl::unexpected("unknown parameter " + name.substr(0, 40));
    if (request.get_param_value_count(name.c_str()) != 1)
      return tl::unexpected(name + " is given twice");
  }
  return {};
}

OrRefusal<std::size_t> integer(const httplib::Request& request, const std::string& name,
                               std::size_t lowest, std::size_t highest) {
  if (!request.has_param(name.c_str())) return tl::unexpected(name + " is missing");
  const std::string text = request.get_param_value(name.c_str());
  const char* const end = text.data() + text.size();
  std::size_t value = 0;
  const auto parsed = std::from_chars(text.data(), end, value);
  const bool is_number = parsed.ec == std::errc() && parsed.ptr == end;
  if (is_number && value >= lowest && value <= highest) return value;
  return tl::unexpected(name + " must be an integer from " + std::to_string(lowest) + " to " +
                        std::to_string(highest));
}

OrRefusal<std::size_t> row_id(const httplib::Request& request, const Model& model) {
  return integer(request, "id", 0, model.embedding().rows() - 1);
}

OrRefusal<Metric> metric(const httplib::Request& request) {
  if (!request.has_param("metric")) return Metric::cosine;
  const std::string name = request.get_param_value("metric");
  if (name == "cosine") return Metric::cosine;
  if (name == "dot") return Metric::dot;
  return tl::unexpected<std::string>("metric must be cosine or dot");
}

// --- answers ---

OrRefusal<Json> answer_embedding(const httplib::Request& request, const Model& model) {
  if (auto known = check_names(request, {"id"}); !known) return tl::unexpected(known.error());
  const auto id = row_id(request, model);
  if (!id) return tl::unexpected(id.error());
  return Json{
      {"id", *id}, {"tensor", model.embedding().name()}, {"values", model.embedding().row(*id)}};
}

OrRefusal<Json> answer_nearest(const httplib::Request& request, const Model& model) {
  if (auto known = check_names(request, {"id", "k", "metric"}); !known)
    return tl::unexpected(known.error());
  const auto id = row_id(request, model);
  if (!id) return tl::unexpected(id.error());
  const auto count = integer(request, "k", 1, most_neighbours);
  if (!count) return tl::unexpected(count.error());
  const auto by = metric(request);
  if (!by) return tl::unexpected(by.error());
  Json neighbours = Json::array();
  for (const Neighbour& neighbour : nearest(model.embedding(), *id, *count, *by))
    neighbours.push_back({{"id", neighbour.id}, {"score", neighbour.score}});
  return Json{{"id", *id}, {"neighbours", std::move(neighbours)}};
}

OrRefusal<Json> answer_tensors(const httplib::Request& request, const Model& model) {
  if (auto known = check_names(request, {}); !known) return tl::unexpected(known.error());
  Json list = Json::array();
  for (const weightmap::NamedTensor& tensor : model.checkpoint().tensors())
    list.push_back({{"name", tensor.name},
                    {"dtype", to_string(tensor.view.dtype())},
                    {"shape", tensor.view.shape()}});
  return Json{{"tensors", std::move(list)}};
}

Json generation_as_json(const weightmap::Generation& generation) {
  return {
      {"inode", generation.inode}, {"size", generation.size}, {"mtime_ns", generation.mtime_ns}};
}

OrRefusal<Json> answer_health(const httplib::Request& request, const ServedModel& served,
                              std::uint64_t requests) {
  if (auto known = check_names(request, {}); !known) return tl::unexpected(known.error());
  const auto model = served.get();
  const std::string refusal = served.refusal();
  return Json{{"ok", model->is_whole()},
              {"pid", getpid()},
              {"requests", requests},
              {"tensors", model->checkpoint().tensors().size()},
              {"embedding", model->embedding().name()},
              {"generation", generation_as_json(model->generation())},
              {"current", served.is_current()},
              {"refused", refusal.empty() ? Json() : Json(refusal)}};
}

// --- responses ---

void send(httplib::Response& response, const Json& answer) {
  // Names come from files and from requests, and need not be UTF-8.
  response.set_content(answer.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n",
                       "application/json");
}

void send(httplib::Response& response, const OrRefusal<Json>& answer) {
  if (!answer) response.status = 400;
  send(response, answer ? *answer : Json{{"error", answer.error()}});
}

// In place of an answer that was made of a file which changed meanwhile.
void send_lost(httplib::Response& response) {
  response.status = 503;
  send(response, Json{{"error", "the checkpoint was cut short or written to in place"}});
}

void send_failure(const httplib::Request&, httplib::Response& response) {
  if (!response.body.empty()) return;
  const bool unknown = response.status == 404;
  send(response, Json{{"error", unknown ? "no such path" : "the request was not understood"}});
}

}  // namespace

void add_answers(httplib::Server& server, const ServedModel& served) {
  const auto requests = std::make_shared<std::atomic<std::uint64_t>>(0);
  // Each request holds the model from its beginning to its end, so a replacement meanwhile does not
  // change what it reads.
  using Answer = OrRefusal<Json>(const httplib::Request&, const Model&);
  const auto add = [&](const char* path, Answer* answer) {
    server.Get(path, [&served, requests, answer](const auto& request, auto& response) {
      ++*requests;
      const auto model = served.get();
      send(response, answer(request, *model));
      if (!model->is_whole()) send_lost(response);
    });
  };
  add("/embedding", answer_embedding);
  add("/nearest", answer_nearest);
  add("/tensors", answer_tensors);
  server.Get("/health", [&served, requests](const auto& request, auto& response) {
    send(response, answer_health(request, served, ++*requests));
  });
  server.set_error_handler(send_failure);
  server.set_default_headers({{"Worker", std::to_string(getpid())}});
}

}  // namespace serving
