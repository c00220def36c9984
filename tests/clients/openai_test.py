"""The openai package against the real server: sync, async, streams, errors and retries."""

import asyncio
import contextlib
import unittest

import openai

from served import QUESTION, SLOW, Server, ServedTest, api, main, text_of

COMMON = {"model": "tiny", "max_tokens": 24}


def client_of(server, kind=openai.OpenAI, **options):
    return kind(base_url=api(server), **{"api_key": "unused", "max_retries": 0, **options})


def text_in(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


class Answers(ServedTest):
    def setUp(self):
        self.client = client_of(self.server)
        self.addCleanup(self.client.close)

    def chat(self, **fields):
        return self.client.chat.completions.create(messages=QUESTION, **COMMON, **fields)

    def test_the_model_is_listed(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["tiny"])
        self.assertEqual(self.client.models.retrieve("tiny").owned_by, "espalier")

    def test_a_chat_is_what_the_server_says(self):
        answer = self.chat(temperature=0.7, seed=5, n=2, logprobs=True, top_logprobs=2)
        self.assertEqual(answer.choices[0].message.content, text_of(self.server, max_tokens=24, temperature=0.7, seed=5))
        self.assertEqual([choice.index for choice in answer.choices], [0, 1])
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        entries = answer.choices[0].logprobs.content
        self.assertTrue(entries and all(len(entry.top_logprobs) == 2 and entry.bytes is not None for entry in entries))
        self.assertEqual(answer._request_id, answer.id)  # of the header X-Request-Id

    def test_completions_take_texts_and_token_ids(self):
        tokens = self.server.post("/tokenize", {"content": "once upon"}).json["tokens"]
        answers = [self.client.completions.create(prompt=prompt, temperature=0, logprobs=1, **COMMON)
                   for prompt in ("once upon", tokens, ["once upon"], [tokens])]
        self.assertEqual(len({answer.choices[0].text for answer in answers}), 1)
        self.assertEqual(len(answers[0].choices[0].logprobs.tokens), answers[0].usage.completion_tokens)

    def test_fields_of_our_own_come_and_go(self):
        answer = self.chat(extra_body={"speculation": False, "return_token_ids": True, "receipt": True})
        self.assertEqual(answer.seed, 3)
        self.assertEqual(answer.timings["draft_n"], 0)
        choice = answer.choices[0]
        self.assertEqual(len(choice.token_ids), answer.usage.completion_tokens)
        self.assertEqual(choice.receipt["answer"], choice.token_ids)

    def test_a_stream_joins_to_the_answer(self):
        for fields in ({"seed": 5}, {"seed": 5, "logprobs": True, "top_logprobs": 1}):
            plain = self.chat(**fields)
            chunks = list(self.chat(**fields, stream=True, stream_options={"include_usage": True}))
            self.assertEqual(text_in(chunks), plain.choices[0].message.content)
            self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
            self.assertEqual((chunks[-1].choices, chunks[-1].usage.completion_tokens), ([], plain.usage.completion_tokens))
            self.assertTrue(all(chunk.usage is None for chunk in chunks[:-1]))

    def test_the_helper_for_streams_makes_the_same_answer(self):
        text = self.chat(seed=5).choices[0].message.content
        stop = text[len(text) // 2]  # the helper makes an error of an answer that a limit ends
        with self.client.chat.completions.stream(messages=QUESTION, seed=5, stop=stop, **COMMON) as stream:
            final = stream.until_done().get_final_completion()
        self.assertEqual(final.choices[0].message.content, text[:text.index(stop)])

    def test_many_at_once_get_what_each_gets_alone(self):
        async def ask_all():
            async with client_of(self.server, openai.AsyncOpenAI) as client:
                async def ask(seed):
                    stream = await client.chat.completions.create(messages=QUESTION, seed=seed, stream=seed % 2 == 1, **COMMON)
                    if seed % 2 == 0:
                        return stream.choices[0].message.content
                    return text_in([chunk async for chunk in stream])
                return await asyncio.gather(*(ask(seed) for seed in range(12)))

        alone = [self.chat(seed=seed).choices[0].message.content for seed in range(12)]
        self.assertEqual(asyncio.run(ask_all()), alone)


class Errors(unittest.TestCase):
    @contextlib.contextmanager
    def served(self, *flags, **options):
        with Server(*flags) as server, client_of(server, **options) as client:
            yield server, client

    def test_each_has_its_class(self):
        with self.served("--alias", "tiny", "--strict-model", "--api-key", "secret", api_key="secret") as (server, client):
            def ask(using=client, **fields):
                return using.chat.completions.create(**{"messages": QUESTION, **COMMON, **fields})

            with self.assertRaises(openai.BadRequestError) as caught:
                ask(temperature=7)
            self.assertEqual((caught.exception.status_code, caught.exception.param, caught.exception.type),
                             (400, "temperature", "invalid_request_error"))
            self.assertTrue(caught.exception.request_id)
            with self.assertRaises(openai.BadRequestError):
                ask(response_format={"type": "json_object"})
            with self.assertRaises(openai.NotFoundError) as caught:
                ask(model="another")
            self.assertEqual(caught.exception.code, "model_not_found")
            with self.assertRaises(openai.NotFoundError):
                client.embeddings.create(model="tiny", input="x")
            with client_of(server, api_key="wrong") as other, self.assertRaises(openai.AuthenticationError):
                ask(other)
            with client_of(server, api_key="secret", default_headers={"Origin": "http://elsewhere.example"}) as other:
                with self.assertRaises(openai.PermissionDeniedError):
                    ask(other)

    def test_nobody_there_and_nobody_in_time(self):
        with self.served(*SLOW, timeout=0.5) as (server, client):
            with self.assertRaises(openai.APITimeoutError):
                client.completions.create(model="x", prompt="x", max_tokens=100_000, n=16, extra_body={"ignore_eos": True})
            server.wait_for(lambda: server.busy_slots() == 0, "who does not wait is not answered")
        with self.assertRaises(openai.APIConnectionError):
            client_of(server).models.list()

    def test_an_error_in_a_stream_is_raised(self):
        with self.served(*SLOW, "--request-timeout", "1") as (_, client):
            stream = client.completions.create(model="x", prompt="x", max_tokens=100_000, n=16, stream=True,
                                               extra_body={"ignore_eos": True})
            with self.assertRaises(openai.APIError) as caught:
                list(stream)
            self.assertEqual(caught.exception.type, "timeout_error")

    def test_who_leaves_a_stream_frees_his_place(self):
        with self.served(*SLOW, "--parallel", "1") as (server, client):
            with client.completions.create(model="x", prompt="x", max_tokens=100_000, n=16, stream=True,
                                           extra_body={"ignore_eos": True}) as stream:
                next(iter(stream))
                server.wait_for(lambda: server.busy_slots() == 1, "it runs")
            server.wait_for(lambda: server.busy_slots() == 0, "its place is free")


class Retries(unittest.TestCase):
    def test_a_full_queue_is_tried_again_as_told(self):
        with Server(*SLOW, "--parallel", "1", "--queue", "1") as server:
            self.assert_tried_again(server, openai.InternalServerError, 503, waiting=1)

    def test_one_request_too_many_of_a_key_is_tried_again(self):
        with Server(*SLOW, "--max-per-key", "1") as server:
            self.assert_tried_again(server, openai.RateLimitError, 429, waiting=0)

    def assert_tried_again(self, server, error, status, waiting):
        with contextlib.ExitStack() as stack:
            for _ in range(1 + waiting):
                self.assertIn(b"200 OK", stack.enter_context(server.open_stream()).recv(100))
            with client_of(server) as impatient, self.assertRaises(error) as caught:
                impatient.completions.create(model="x", prompt="x", max_tokens=1)
            self.assertEqual(caught.exception.status_code, status)
            self.assertTrue(1 <= int(caught.exception.response.headers["Retry-After"]) <= 30)
            # The places become free when it has been refused once.
            hooks = {"response": [lambda response: stack.close()]}
            with client_of(server, max_retries=5, http_client=openai.DefaultHttpxClient(event_hooks=hooks)) as patient:
                answer = patient.completions.with_raw_response.create(model="x", prompt="x", max_tokens=1)
            self.assertGreaterEqual(answer.retries_taken, 1)
            self.assertEqual(answer.parse().usage.completion_tokens, 1)


if __name__ == "__main__":
    main()
