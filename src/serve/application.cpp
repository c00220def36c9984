#include "serve/application.h"

#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "base/error.h"
#include "engine/build_facts.h"
#include "engine/model_advice.h"
#include "serve/answer_writer.h"
#include "serve/page/chat_page.h"
#include "serve/protocol/openapi.h"
#include "serve/protocol/text_endpoints.h"

namespace espalier {
namespace {

bool asks_for_answers(Endpoint endpoint) {
  return endpoint == Endpoint::chat_completions || endpoint == Endpoint::completions;
}

// Needs no more than a moment, so it waits for nobody's body to be read.
bool answers_at_once(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::health:
    case Endpoint::version:
    case Endpoint::openapi:
    case Endpoint::page:
    case Endpoint::models:
    case Endpoint::model:
    case Endpoint::props:
    case Endpoint::slots:
    case Endpoint::metrics: return true;
    default: return false;
  }
}

BuildFacts build_facts() {
  return {.version = std::string(build_version()),
          .commit = std::string(build_commit()),
          .compiler = std::string(build_compiler()),
          .flags = std::string(build_flags())};
}

HttpResponse json_response(std::string body) {
  return {.body = std::move(body)};
}

}  // namespace

// One request with its reply. Shared by the job that prepares it and by the connection.
struct Application::Exchange {
  HttpRequest request;
  Reply reply;
  FoundRoute route;
  ServiceClock::time_point arrived = ServiceClock::now();

  std::mutex mutex = {};
  AnswerService::Ticket ticket = 0;  // none yet
  bool gone = false;

  // The client has left, or a ticket is there: whichever comes second cancels.
  void leave(AnswerService& service) {
    const std::lock_guard lock(mutex);
    gone = true;
    if (ticket != 0) service.cancel(ticket);
  }
  void take(AnswerService::Ticket given, AnswerService& service) {
    const std::lock_guard lock(mutex);
    ticket = given;
    if (gone) service.cancel(ticket);
  }
};

Application::Application(ApplicationOptions options, WorkerPool& pool, Metrics& metrics)
    : options_(std::move(options)), pool_(pool), metrics_(metrics) {}

void Application::set_model(std::shared_ptr<const ServedModel> model) {
  const std::lock_guard lock(mutex_);
  model_ = std::move(model);
}

std::shared_ptr<const ServedModel> Application::model() const {
  {
    const std::lock_guard lock(mutex_);
    if (model_) return model_;
  }
  health_json(ServerHealth::loading);
  return {};
}

HttpApplication Application::http() {
  return {
      .is_public = [this](const HttpHead& head) { return is_public(head); },
      .admit = [this](const HttpHead& head) { return admit(head); },
      .handle = [this](HttpRequest request, std::shared_ptr<HttpReply> reply) { handle(std::move(request), reply); },
      .error_body = [](const HttpRefusal& refusal) { return error_json(http_error(refusal.status, refusal.message)); },
      .on_refused = [this](int status) { metrics_.count_error(status); }};
}

bool Application::is_public(const HttpHead& head) const {
  for (const Route& route : routes())
    if (route.path == head.target.path)
      return !route.needs_key || (route.endpoint == Endpoint::metrics && options_.public_metrics);
  return false;
}

std::optional<HttpRefusal> Application::admit(const HttpHead& head) const {
  const std::string& path = head.target.path;
  try {
    const std::optional<FoundRoute> route = find_route(head.method, path);
    if (route && (route->endpoint != Endpoint::page || options_.page)) return std::nullopt;
    throw path_not_found(head.method, path);
  } catch (const ApiError& error) {
    HttpRefusal refusal{.status = error.status, .message = error.message};
    if (!error.allow.empty()) refusal.headers.push_back({"Allow", error.allow});
    return refusal;
  }
}

// Where not even that can be told, the server answers for a reply that nobody finishes.
void Application::send_error(std::exception_ptr failure, std::string_view id, const Reply& reply) const noexcept {
  try {
    const ApiError error = api_error_of(std::move(failure), id);
    metrics_.count_error(error.status);
    reply->send(error_response(error));
  } catch (...) {
    reply->abandon();
  }
}

void Application::handle(HttpRequest request, const Reply& reply) {
  const std::string id = request.head.id;
  try {
    const std::optional<FoundRoute> route = find_route(request.head.method, request.head.target.path);
    check(route.has_value(), "a request without a route was admitted");
    if (answers_at_once(route->endpoint)) {
      reply->send(respond(request, *route));
      return;
    }
    const bool answers = asks_for_answers(route->endpoint);
    if (answers) service_->check_room(request.head.key);
    prepare(std::shared_ptr<Exchange>(new Exchange{std::move(request), reply, *route}), answers);
  } catch (...) {
    send_error(std::current_exception(), id, reply);
  }
}

void Application::prepare(const std::shared_ptr<Exchange>& exchange, bool answers) {
  if (answers) exchange->reply->on_gone([this, exchange] { exchange->leave(*service_); });
  const bool taken = pool_.prepare([this, exchange, answers] {
    if (exchange->reply->gone()) return;
    try {
      if (answers)
        answer(*exchange, exchange->route);
      else
        exchange->reply->send(respond_about_model(exchange->request, exchange->route));
    } catch (...) {
      send_error(std::current_exception(), exchange->request.head.id, exchange->reply);
    }
  });
  if (!taken) throw unavailable("too many requests wait to be read", 1);
}

// Whose computed prefixes a request may find: whoever could time his answers would learn what others have asked.
std::string Application::salt_of(const RequestPlan& plan, int key) const {
  return fmt::format("{}\n{}", options_.salt_by_key ? key : -1, plan.salt);
}

void Application::answer(Exchange& exchange, const FoundRoute& route) {
  const std::shared_ptr<const ServedModel> served = model();
  const std::shared_ptr<const TextSettings> settings = served->settings();
  const std::string& body = exchange.request.body;
  const bool chat = route.endpoint == Endpoint::chat_completions;
  RequestPlan plan =
      chat ? plan_chat(parse_chat_request(body), served->text(), settings->server, fresh_seed())
           : plan_completion(parse_completion_request(body), served->text(), settings->server, fresh_seed());
  const int key = exchange.request.head.key;
  const std::string id = answer_id(plan.form.api, exchange.request.head.id);
  AnswerSheet sheet{.frame = frame_of(plan, settings->server, id, std::time(nullptr), settings->fingerprint),
                    .prompts = plan.prompts,
                    .choices = plan.choices,
                    .receipts = chat ? settings->chat_receipts : settings->raw_receipts,
                    .owner = served,
                    .tokenizer = served->text().tokenizer.get()};
  std::string salt = salt_of(plan, key);
  const auto writer =
      std::make_shared<AnswerWriter>(pool_, metrics_, std::move(sheet), exchange.reply, options_.outbox_bytes);
  try {
    exchange.take(service_->submit({.id = id,
                                    .plan = std::move(plan),
                                    .key = key,
                                    .salt = std::move(salt),
                                    .arrived = exchange.arrived,
                                    .listener = writer}),
                  *service_);
  } catch (...) {  // the reply is the writer's from here on
    writer->failed(api_error_of(std::current_exception(), id));
  }
}

HttpResponse Application::page() const {
  return {.content_type = "text/html; charset=utf-8",
          .headers = {{"Content-Security-Policy", chat_page_policy()}, {"Cache-Control", "no-cache"}},
          .body = std::string(chat_page())};
}

HttpResponse Application::respond(const HttpRequest& request, const FoundRoute& route) const {
  switch (route.endpoint) {
    case Endpoint::health: return json_response(health_json(service_->health()));
    case Endpoint::version: return json_response(version_json(build_facts()));
    case Endpoint::openapi: return json_response(std::string(kOpenApi));
    case Endpoint::page: return page();
    default: return respond_about_model(request, route);
  }
}

HttpResponse Application::respond_about_model(const HttpRequest& request, const FoundRoute& route) const {
  if (route.endpoint == Endpoint::metrics) return metrics_text();
  const std::shared_ptr<const ServedModel> served = model();
  const ModelText& text = served->text();
  const std::shared_ptr<const TextSettings> settings = served->settings();
  const ServerSettings& server = settings->server;
  switch (route.endpoint) {
    case Endpoint::models: return json_response(models_json(served->facts()));
    case Endpoint::model: return json_response(model_json(served->facts(), route.id));
    case Endpoint::tokenizer_info:
      return json_response(tokenizer_info_response(text, served->server_facts().chat_template));
    case Endpoint::props: return json_response(props_json(served->server_facts(), server));
    case Endpoint::slots: return slots(request);
    case Endpoint::tokenize:
      return json_response(tokenize_response(parse_tokenize_request(request.body), text, server));
    case Endpoint::detokenize:
      return json_response(detokenize_response(parse_detokenize_request(request.body), text, server));
    case Endpoint::apply_template:
      return json_response(apply_template_response(parse_chat_prompt(request.body), text, server));
    case Endpoint::input_tokens:
      return json_response(input_tokens_response(parse_chat_prompt(request.body), text, server));
    default: throw path_not_found(request.head.method, request.head.target.path);
  }
}

HttpResponse Application::slots(const HttpRequest& request) const {
  if (!options_.slots) throw endpoint_off("/slots", "--no-slots");
  const std::string_view fails = request.head.target.parameter("fail_on_no_slot").value_or("");
  const bool fail_on_no_slot = !fails.empty() && fails != "0" && fails != "false";
  return json_response(slots_json(service_->reading().slots, model()->context(), fail_on_no_slot));
}

HttpResponse Application::metrics_text() const {
  if (!options_.metrics) throw endpoint_off("/metrics", "--metrics");
  Metrics::Build build{.version = std::string(build_version())};
  {
    const std::lock_guard lock(mutex_);
    if (model_) build.fingerprint = model_->settings()->fingerprint;
  }
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = metrics_.text(service_->reading(), build, options_.connections())};
}

}  // namespace espalier
