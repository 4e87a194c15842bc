import { type DeclaredMethod, keyUseOf } from '../../src/agent/service/rpc.ts'
import { declaredMethods } from '../../src/agent/service/services.ts'
import { REQUESTS } from '../../src/gen/message-fields.ts'
import { serviceDependencies } from '../../test/support/agent/service-dependencies.ts'

const INTRODUCTION = `# The RPCs

For people who call the agent or change it: how the agent treats each RPC, and what an RPC does when its caller or the agent
goes away. \`npm run gen\` makes this page from the declarations in \`src/agent/service/methods\`.

- **Answered**: \`at once\`, also while the agent boots; otherwise after the boot.
- **Turn**: \`work\` takes one of the [places](limits.md) of calls that work, and waits for one. \`wait\` takes none, and waits
  for a process or an event as long as its caller likes. \`brief\` takes none.
- **Reserve**: how much of the reserve of the limits the call may use; otherwise nothing.
- **Policy's rule**: the [rule](../policy.md#the-rules) that has to allow the call; otherwise the RPC's name and \`Request\`.
- **Hang-up or deadline**: \`cancel\` aborts the work, which undoes itself before the call ends. \`finish\` answers the
  deadline, and the work runs to its end.
  ttRPC has no message that cancels a call. A client that gives up by its own clock may miss an answer that is on its
  way, and an exit status or output with it: set \`timeout_nano\`, and wait for the agent's DEADLINE_EXCEEDED. The shims
  wait for a process without a deadline.
- **Agent dies**: what the next agent does with a call that was not answered.
  \`read\`: it runs again; it changes nothing, and its answer takes nothing away.
  \`idempotent\`: it runs again, and finds done what the first run did.
  \`journaled\`: it is answered from the recorded outcome, finished, or undone and run again; this holds for answers that
  take something away too (output, an OOM event, an exit status).
  \`at-most-once\`: recorded right before its effect, and not repeated from then on.
  A call is sent again only where the [broker](../broker.md) has its connection: ttRPC below \`vminit\`. The outcome of a
  \`journaled\` call is recorded before its answer is sent, unless the record of what it has made tells it, and forgotten when
  the answer was delivered or dropped.
- **Key**: what becomes of an [idempotency key](#repeating-a-call); empty: it changes nothing, so a key is ignored.
- **Frozen**: whether it is refused, or thaws the pod first, while [Quiesce](../resume.md#a-pod-at-rest) has frozen it.
- **Log**: the level of the line that tells how the call ended; otherwise info.

## Repeating a call

A call with the metadata \`idempotency-key\` happens once. Its caller repeats the same request with the same key, over any
connection, by ttRPC (in the first 16 pairs) or gRPC, and gets the outcome of the first, for 10 minutes after that
([limits](limits.md#of-calls-with-a-key)). The agent may die meanwhile.

- \`goes on\`: the work goes on when its connection is lost, and the repeated call joins it. \`cancel\` still aborts at the first
  caller's deadline. \`ends\`: a wait without callers ends, and the repeated call begins anew; what it has told is kept.
  \`refused\`: what the answer takes away is not kept, so a key is INVALID_ARGUMENT.
- A key belongs to a method and a request: with any other it is INVALID_ARGUMENT. The policy is asked each time, except by
  SetPolicy, and its state changes once.
- CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED and UNAVAILABLE are not kept: the repeated call begins anew.
- The next agent keeps the outcomes. It carries out a call in which the previous one died when that is repeated, as one that
  the broker sends again.

| RPC | Answered | Turn | Reserve | Policy's rule | Hang-up or deadline | Agent dies | Key | Frozen | Log |
|---|---|---|---|---|---|---|---|---|---|
`
const FROZEN = { serve: '', refuse: 'refused', thaw: 'thaws' } as const
const RESERVE = { ordinary: '', waiting: 'half', reserved: 'all' } as const

export async function rpcsPage(): Promise<string> {
  const methods = declaredMethods(await serviceDependencies())
  return `${INTRODUCTION}${methods.map(rowOf).join('')}`
}

/** A cell with the usual value is empty. A method that is not declared yet has no row. */
function rowOf({ name, rpc }: Partial<DeclaredMethod<unknown, unknown>>): string {
  if (name === undefined || rpc === undefined) return ''
  const gate = rpc.gate === 'open' ? 'at once' : ''
  const { turn, share, onHangup, recovery, whileFrozen, logLevel } = rpc
  const use = keyUseOf(rpc)
  const cells = [
    `\`${name}\``,
    gate,
    turn,
    RESERVE[share],
    ruleOf(name, rpc.rule),
    onHangup,
    recovery,
    use === 'ignored' ? '' : use,
    FROZEN[whileFrozen],
    logLevel === 'info' ? '' : logLevel,
  ]
  return `|${cells.map((cell) => (cell === '' ? ' |' : ` ${cell} |`)).join('')}\n`
}

function ruleOf(method: string, rule: DeclaredMethod<unknown, unknown>['rpc']['rule']): string {
  if (rule === 'none') return 'none'
  const message = typeof rule === 'object' ? rule.message : (REQUESTS[method] ?? '')
  const name = message.slice(message.lastIndexOf('.') + 1)
  if (rule === 'itself') return `\`${name}\`, by its function`
  return name === `${method.slice(method.indexOf('/') + 1)}Request` ? '' : `\`${name}\``
}
