// Server-sent events out of a response, however its bytes are cut.

// Texts in, the data of whole events out. Comments and other fields are left out.
class EventParser {
  constructor() {
    this.rest = "";
    this.lines = [];
  }

  push(text) {
    this.rest += text;
    const events = [];
    for (let line = this.takeLine(); line !== null; line = this.takeLine()) {
      if (line === "" && this.lines.length > 0) events.push(this.lines.splice(0).join("\n"));
      if (line.startsWith("data:")) this.lines.push(line.slice(line[5] === " " ? 6 : 5));
    }
    return events;
  }

  // Without its end, or null. A \r that came last may be half of \r\n.
  takeLine() {
    const end = /\r\n|\n|\r(?!$)/.exec(this.rest);
    if (!end) return null;
    const line = this.rest.slice(0, end.index);
    this.rest = this.rest.slice(end.index + end[0].length);
    return line;
  }
}

// The data of a response's events as they come. Characters whose bytes come apart are put together.
async function* eventsOf(response) {
  const reader = response.body.getReader(), decoder = new TextDecoder(), parser = new EventParser();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) yield* parser.push(decoder.decode(part.value, {stream: true}));
  } finally {
    reader.cancel().catch(() => {});  // whoever stops listening lets the server stop too
  }
}

// The object under "name" in an event, as the bytes that came: numbers that this browser would round stay as they are.
// The quotes of a name cannot be part of a text, where quotes are escaped.
const rawObject = (json, name) => {
  const key = new RegExp(`"${name}"\\s*:\\s*(?={)`).exec(json);
  if (!key) return null;
  const begin = key.index + key[0].length;
  let depth = 0;
  for (const token of json.slice(begin).matchAll(/"(?:[^"\\]|\\.)*"|[{}]/g)) {
    if (token[0] === "{") depth += 1;
    if (token[0] === "}") depth -= 1;
    if (depth === 0) return json.slice(begin, begin + token.index + 1);
  }
  return null;
};
