// The server, as any client sees it.

// What the server, or the way to it, said instead of an answer.
class ApiFailure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const kLost = "The connection was lost before the answer was complete.";
const kUnreachable = "The server cannot be reached.";

class ChatApi {
  constructor(store) {
    this.store = store;
  }

  headers() {
    return {"Content-Type": "application/json", ...(this.store.key === "" ? {} : {Authorization: `Bearer ${this.store.key}`})};
  }

  async ask(path, options = {}) {
    let response;
    try {
      response = await fetch(path, {cache: "no-store", headers: this.headers(), ...options});
    } catch (error) {
      throw error.name === "AbortError" ? error : new ApiFailure(0, kUnreachable);
    }
    if (response.ok) return response;
    throw new ApiFailure(response.status, await this.refusal(response));
  }

  async refusal(response) {
    const said = await response.json().then((body) => body.error.message).catch(() => null);
    return isText(said) ? said : `The server answered with status ${response.status}.`;
  }

  async props() {
    return (await this.ask("props")).json();
  }

  // The objects of an answer's events. Throws ApiFailure where the server or the connection fails.
  async* answer(body, signal) {
    const response = await this.ask("v1/chat/completions", {method: "POST", body, signal});
    let ended = false;
    try {
      for await (const data of eventsOf(response)) {
        if (data === "[DONE]") return;
        const event = this.parse(data);
        if (event.error) throw new ApiFailure(0, isText(event.error.message) ? event.error.message : "The server failed.");
        ended ||= Boolean(event.choices?.[0]?.finish_reason);
        yield {...event, receipt: rawObject(data, "receipt")};
      }
    } catch (error) {
      if (error instanceof ApiFailure || error.name === "AbortError" || signal.aborted) throw error;
      throw new ApiFailure(0, kLost);
    }
    if (!ended) throw new ApiFailure(0, kLost);
  }

  parse(data) {
    try {
      return JSON.parse(data);
    } catch {
      throw new ApiFailure(0, "The server sent something that is no answer.");
    }
  }
}
