"""litellm against the real server, through its providers for servers like ours."""

import asyncio
import os
import unittest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the network for prices

import litellm  # noqa: E402

litellm.suppress_debug_info = True

from served import QUESTION, Server, ServedTest, api, main, text_of  # noqa: E402

PROVIDERS = ("openai", "hosted_vllm")


def common(server, provider, **more):
    return {"model": f"{provider}/tiny", "api_base": api(server), "api_key": "unused", "max_tokens": 24, "num_retries": 0, **more}


class Answers(ServedTest):
    def test_a_chat_is_what_the_server_says(self):
        for provider in PROVIDERS:
            answer = litellm.completion(messages=QUESTION, seed=5, **common(self.server, provider))
            self.assertEqual(answer.choices[0].message.content, text_of(self.server, max_tokens=24, seed=5))
            self.assertGreater(answer.usage.completion_tokens, 0)

    def test_a_stream_joins_to_the_answer(self):
        for provider in PROVIDERS:
            stream = litellm.completion(messages=QUESTION, seed=5, stream=True, **common(self.server, provider))
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            self.assertEqual(text, text_of(self.server, max_tokens=24, seed=5))

    def test_many_at_once_get_what_each_gets_alone(self):
        async def ask_all():
            asking = (litellm.acompletion(messages=QUESTION, seed=seed, **common(self.server, "openai")) for seed in range(8))
            return [answer.choices[0].message.content for answer in await asyncio.gather(*asking)]

        self.assertEqual(asyncio.run(ask_all()), [text_of(self.server, max_tokens=24, seed=seed) for seed in range(8)])

    def test_completions_without_a_chat(self):
        answer = litellm.text_completion(prompt="once upon", temperature=0, **common(self.server, "text-completion-openai"))
        self.assertEqual(answer.choices[0].text, self.server.complete(prompt="once upon", temperature=0, max_tokens=24).json[
            "choices"][0]["text"])


class Errors(unittest.TestCase):
    def test_each_has_its_class(self):
        with Server("--api-key", "secret", "--context", "128") as server:
            with self.assertRaises(litellm.AuthenticationError):
                litellm.completion(messages=QUESTION, **common(server, "openai", api_key="wrong"))
            with self.assertRaises(litellm.BadRequestError):
                litellm.completion(messages=QUESTION, **common(server, "openai", api_key="secret", temperature=7))
            with self.assertRaises(litellm.ContextWindowExceededError):
                long = [{"role": "user", "content": "word " * 1000}]
                litellm.completion(messages=long, **common(server, "openai", api_key="secret"))


if __name__ == "__main__":
    main()
