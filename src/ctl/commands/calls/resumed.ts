import { randomBytes } from 'node:crypto'
import { describedMessage } from '../../../client/json/described-types.ts'
import { type Column, table } from '../../../client/output/table.ts'
import { ageText } from '../../../client/output/text.ts'
import { type GetResumeResponse, Identity, type ResumeStep } from '../../../gen/microvm/agent/v1/lifecycle.ts'
import { lifecycleCalls } from '../../clients.ts'
import { type Context, EXIT, UsageError } from '../../command.ts'
import { encodeWords } from '../../methods/request-words.ts'
import { printAs } from '../../output/print.ts'

const SEED_BYTES = 64
const WAIT_MS = 60_000

export async function runResumed(context: Context): Promise<number> {
  const { values } = context
  const generation = values.text('generation') ?? randomBytes(16).toString('hex')
  const words = values.rest('IDENTITY')
  const bytes = await encodeWords(describedMessage('microvm.agent.v1.Identity'), words, context.io.stdin)
  const identity = words.length === 0 ? undefined : Identity.decode(bytes)
  const lifecycle = await lifecycleCalls(context)
  const timeNs = BigInt(Date.now()) * 1_000_000n
  const { number } = await lifecycle.resumed({ generation, seed: randomBytes(SEED_BYTES), timeNs, identity })
  return show(context, await lifecycle.getResume({ number, timeoutMs: WAIT_MS }))
}

export async function runResumeStatus(context: Context): Promise<number> {
  const text = context.values.argument('NUMBER') || '0'
  if (!/^\d{1,18}$/.test(text)) throw new UsageError(`NUMBER: ${text} is no number`)
  const lifecycle = await lifecycleCalls(context)
  return show(context, await lifecycle.getResume({ number: BigInt(text) }))
}

const COLUMNS: readonly Column<ResumeStep>[] = [
  { title: 'STEP', text: ({ name }) => name },
  { title: 'STATE', text: ({ state }) => state },
  { title: 'TOOK', text: ({ durationMs }) => ageText(durationMs), right: true },
  { title: 'REASON', text: ({ reason }) => reason },
]

async function show(context: Context, told: GetResumeResponse): Promise<number> {
  const { clockStepMs, number, randomness, state, steps, trigger } = told
  const clock = clockStepMs === undefined ? 'not set' : `moved by ${clockStepMs} ms`
  const head = `repair ${number}, begun by ${trigger}: ${state}; randomness ${randomness}; clock ${clock}\n`
  await printAs(context, { text: `${head}${table(COLUMNS, steps, undefined)}`, value: told })
  return state === 'ready' ? 0 : EXIT.failed
}
