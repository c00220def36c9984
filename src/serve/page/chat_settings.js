// The settings, as the dialog shows them and a request carries them. An empty field leaves the choice to the server.
const kSeed = /^-?\d{1,19}$/;

const kFields = {
  system: {},
  temperature: {accepts: (text) => Number(text) >= 0 && Number(text) <= 2, wants: "a number from 0 to 2"},
  seed: {accepts: (text) => kSeed.test(text) && BigInt.asIntN(64, BigInt(text)) === BigInt(text), wants: "a whole number of 64 bits"},
  length: {accepts: (text) => /^[1-9]\d{0,8}$/.test(text), wants: "a whole number from 1 on"},
  drafter: {},
};

class ChatSettings {
  constructor(store) {
    this.store = store;
    this.props = {};
    for (const name of Object.keys(kFields)) byId(name).addEventListener("change", () => this.take(name));
    byId("reset").addEventListener("click", () => this.reset());
    byId("forget-key").addEventListener("click", () => { this.store.key = ""; this.show(); });
    byId("close-settings").addEventListener("click", () => byId("settings").close());
  }

  open() {
    this.show();
    byId("settings").showModal();
  }

  // What the server says of itself.
  learn(props) {
    this.props = props;
    const drafters = isList(props.drafters, isText) ? props.drafters : [];
    const choices = [["auto", drafters.length > 0 ? `automatic (${drafters.join(", ")})` : "automatic"], ["none", "none"],
      ...(drafters.length > 1 ? drafters.map((name) => [name, name]) : [])];
    byId("drafter").replaceChildren(...choices.map(([value, text]) => make("option", {value}, text)));
    this.show();
  }

  // Of a field, "" where it is the server's choice.
  value(name) {
    const kept = this.store.settings[name];
    if (name === "system") return isText(kept) ? kept : this.chosenSystem();
    if (name === "drafter") return [...byId("drafter").options].some((option) => option.value === kept) ? kept : "auto";
    return isText(kept) && kFields[name].accepts(kept) ? kept : "";
  }

  // The one that is known to be good for this model.
  chosenSystem() {
    return isText(this.props.system_message) ? this.props.system_message : "";
  }

  take(name) {
    const field = byId(name), text = name === "system" ? field.value : field.value.trim(), {accepts, wants} = kFields[name];
    const bad = field.validity?.badInput || (text !== "" && accepts && !accepts(text));
    this.complain(name, bad ? `Expected ${wants}.` : "");
    if (bad) return;
    const settings = {...this.store.settings, [name]: text};
    if (name === "system" ? text === this.chosenSystem() : text === "") delete settings[name];
    this.store.settings = settings;
  }

  complain(name, text) {
    const place = byId(`${name}-error`);
    if (!place) return;
    place.textContent = text;
    if (text === "") byId(name).removeAttribute("aria-invalid");
    else byId(name).setAttribute("aria-invalid", "true");
  }

  reset() {
    this.store.settings = {};
    this.show();
    byId("settings-status").textContent = "All settings are the server\u2019s.";
  }

  show() {
    for (const name of Object.keys(kFields)) {
      byId(name).value = this.value(name);
      this.complain(name, "");
    }
    byId("settings-status").textContent = "";
    byId("forget-key").hidden = this.store.key === "";
    byId("temperature").placeholder = this.serverTemperature();
    byId("server-facts").replaceChildren(...this.facts().flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  }

  serverTemperature() {
    const temperature = this.props.default_generation_settings?.params?.temperature;
    return Number.isFinite(temperature) ? `${Number(temperature.toPrecision(6))}` : "";
  }

  facts() {
    const {props} = this, context = props.default_generation_settings?.n_ctx;
    return [["Model", props.model_alias ?? props.model_path], ["Context", Number.isFinite(context) ? `${context} tokens` : undefined],
      ["At once", Number.isFinite(props.total_slots) ? counted(props.total_slots, "answer") : undefined],
      ["Fingerprint", props.fingerprint], ["Build", props.build_info]].filter(([, text]) => isText(text) && text !== "");
  }

  // The body of a request. The seed is written as it was typed: as a number of this language it would be rounded.
  request(messages) {
    const system = this.value("system"), temperature = this.value("temperature"), length = this.value("length"), seed = this.value("seed");
    const body = JSON.stringify({
      messages: [...(system.trim() === "" ? [] : [{role: "system", content: system}]), ...messages],
      stream: true, stream_options: {include_usage: true}, timings_per_token: true, rounds: true, return_token_ids: true,
      receipt: this.props.batch_invariant !== false,
      speculation: {draft: this.value("drafter")},
      ...(temperature === "" ? {} : {temperature: Number(temperature)}),
      ...(length === "" ? {} : {max_tokens: Number(length)}),
    });
    return seed === "" ? body : `${body.slice(0, -1)},"seed":${BigInt(seed)}}`;
  }
}
