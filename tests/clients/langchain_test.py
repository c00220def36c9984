"""langchain-openai against the real server: chat and completions, plain, streamed, batched, async."""

import asyncio

import openai
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI

from served import ServedTest, api, main, text_of


class LangChain(ServedTest):
    def chat(self, **options):
        return ChatOpenAI(base_url=api(self.server), api_key="unused", model="tiny", max_retries=0, **{
            "max_tokens": 24, "seed": 5, "temperature": 1, **options})

    def expected(self, **fields):
        return text_of(self.server, **{"max_tokens": 24, "seed": 5, **fields})

    def test_a_chat_is_what_the_server_says(self):
        answer = self.chat().invoke("hello")
        self.assertEqual(answer.content, self.expected())
        self.assertGreater(answer.usage_metadata["output_tokens"], 0)
        self.assertIn(answer.response_metadata["finish_reason"], ("stop", "length"))

    def test_a_stream_joins_to_the_answer(self):
        chunks = list(self.chat(stream_usage=True).stream([HumanMessage("hello")]))
        self.assertEqual("".join(chunk.content for chunk in chunks), self.expected())
        self.assertGreater(sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata), 0)

    def test_batches_and_async_calls_get_the_same(self):
        model = self.chat()
        self.assertEqual({answer.content for answer in model.batch(["hello"] * 6)}, {self.expected()})
        self.assertEqual(asyncio.run(model.ainvoke("hello")).content, self.expected())

    def test_several_messages_and_logprobs(self):
        model = self.chat().bind(logprobs=True, top_logprobs=2)
        answer = model.invoke([SystemMessage("be short"), HumanMessage("hello")])
        self.assertEqual(len(answer.response_metadata["logprobs"]["content"]), answer.usage_metadata["output_tokens"])

    def test_completions_without_a_chat(self):
        model = OpenAI(base_url=api(self.server), api_key="unused", model="tiny", temperature=0, max_tokens=24)
        expected = self.server.complete(prompt="once upon", temperature=0, max_tokens=24).json["choices"][0]["text"]
        self.assertEqual(model.invoke("once upon"), expected)
        self.assertEqual("".join(model.stream("once upon")), expected)

    def test_errors_are_those_of_the_openai_package(self):
        with self.assertRaises(openai.BadRequestError):
            self.chat(temperature=7).invoke("hello")

    def test_a_prompt_that_does_not_fit_is_told_from_other_errors(self):
        with self.assertRaises(ContextOverflowError):
            self.chat().invoke("word " * 1000)


if __name__ == "__main__":
    main()
