// The example of docs/runtime.md, word for word between the two marks, and run.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>

#include "runtime/actor_system.h"
#include "runtime/completion_queue.h"
#include "tests/support/hand_driven_system.h"

namespace railhop {
namespace {

// [example]
struct Question {
  uint64_t value = 0;
};
struct Answer {
  uint64_t value = 0;
};

class Doubler : public Actor {
 public:
  Doubler() : Actor("doubler") {}

  // A handler: true takes the message, false leaves it where it is until a later pass.
  bool OnQuestion(const Question& question) {
    answers.Send({question.value * 2});
    return true;
  }
  // Nothing stays behind between messages, so the default Drained() is right.

  OutPort<Answer> answers;
};

uint64_t SumOfDoubles(uint64_t count) {
  constexpr uint64_t kWindow = 16;  // questions without an answer, at most
  SubmissionQueue<Question> questions(kWindow);
  CompletionQueue<Answer> answers(CapacityForWindow(kWindow));

  ActorSystem system;
  Reactor& core = *system.AddReactor({.name = "doubler", .idle = IdlePolicy::kEvent});
  Doubler& doubler = system.AddActor<Doubler>(core);
  system.Connect<&Doubler::OnQuestion>(questions, doubler);
  answers.Connect(core, doubler.answers);
  if (!system.Start().ok()) return 0;

  uint64_t asked = 0;
  uint64_t answered = 0;
  uint64_t sum = 0;
  while (answered < count) {
    while (asked < count && asked - answered < kWindow && questions.Prepare({asked})) ++asked;
    questions.Submit();
    if (!answers.Wait(std::chrono::seconds(60))) break;
    for (const Answer* answer = answers.Peek(); answer != nullptr; answer = answers.Peek()) {
      sum += answer->value;
      ++answered;
      answers.Advance();
    }
  }
  system.Stop(std::chrono::seconds(5));
  return sum;
}
// [example]

TEST(ExampleActorTest, RunsOnAThread) {
  constexpr uint64_t kCount = 1'000;
  EXPECT_EQ(SumOfDoubles(kCount), kCount * (kCount - 1));
}

// [by hand]
TEST(ExampleActorTest, RunsByHand) {
  CompletionQueue<Answer> answers(4);
  HandDrivenSystem hand;  // a clock that stands still, and no threads
  SubmissionQueue<Question> questions(4, 1, hand.clock().clock());
  Reactor& core = hand.AddReactor("doubler");
  Doubler& doubler = hand.system().AddActor<Doubler>(core);
  hand.system().Connect<&Doubler::OnQuestion>(questions, doubler);
  answers.Connect(core, doubler.answers);
  hand.Start();

  ASSERT_TRUE(questions.Prepare({21}));
  EXPECT_EQ(answers.Peek(), nullptr);
  hand.clock().Advance(100);
  hand.RunUntilIdle();
  ASSERT_NE(answers.Peek(), nullptr);
  EXPECT_EQ(answers.Peek()->value, 42U);
  EXPECT_EQ(doubler.metrics().queue_wait.Snapshot().Max(), 100U);  // exactly
}
// [by hand]

std::string Read(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// What lies between the first two lines that are `mark`.
std::string Between(const std::string& text, const std::string& mark) {
  const size_t begin = text.find(mark) + mark.size();
  return text.substr(begin, text.find(mark, begin) - begin);
}

TEST(ExampleActorTest, TheDocumentationShowsThisCode) {
  const std::string code = Read("tests/runtime/example_actor_test.cc");
  if (code.empty()) GTEST_SKIP() << "not run from the root of the sources";
  const std::string page = Read("docs/runtime.md");
  EXPECT_NE(page.find(Between(code, "\n// [example]\n")), std::string::npos);
  EXPECT_NE(page.find(Between(code, "\n// [by hand]\n")), std::string::npos);
}

}  // namespace
}  // namespace railhop
