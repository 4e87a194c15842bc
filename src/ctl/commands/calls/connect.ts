import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../../../base/errors.ts'
import { CommandFailure, type Context, UsageError } from '../../command.ts'
import { parseDuration } from '../../command-line/duration.ts'
import { callMethod } from '../../methods/call-method.ts'
import { METHODS } from '../../methods/method-names.ts'
import { describedMethod } from '../../methods/schema.ts'
import { print, printJson } from '../../output/print.ts'
import { parseReferenceCommand, type ReferenceCommand } from '../../reference/command-text.ts'
import { ReferenceState, referenceRequests } from '../../reference/requests.ts'

/** The metadata of every call of kata-agent-ctl. */
const METADATA = { 'agent-ctl-cfg': 'auto-values' }

export async function run(context: Context): Promise<undefined> {
  const { values } = context
  const runner = new Runner(context)
  for (const text of values.texts('cmd')) if (await runner.run(text)) return
  if (isOn(context, 'interactive')) {
    for await (const line of createInterface({ input: context.io.stdin })) {
      if (line.trim() !== '' && (await runner.run(line))) break
    }
  } else if (values.texts('cmd').length === 0) {
    throw new UsageError('connect: no command, want -c COMMAND or --interactive')
  }
}

function isOn({ values }: Context, name: string): boolean {
  return values.flag(name) && values.text(name) !== 'false'
}

class Runner {
  readonly #context: Context
  readonly #state: ReferenceState
  #repeat = 1

  constructor(context: Context) {
    this.#context = context
    this.#state = new ReferenceState({
      bundleFolder: context.values.text('bundle-dir'),
      hasAutoValues: !isOn(context, 'no-auto-values'),
    })
  }

  /** Returns whether the run is over. Throws unless failures are ignored. */
  async run(text: string): Promise<boolean> {
    const command = parseReferenceCommand(text)
    const times = this.#repeat
    this.#repeat = 1
    let isOver = false
    for (let round = 0; round < times && !isOver; round += 1) isOver = await this.#once(command)
    return isOver
  }

  async #once(command: ReferenceCommand): Promise<boolean> {
    const builtIn = BUILT_INS[command.name.toLowerCase()]
    if (builtIn !== undefined)
      return await builtIn(this.#context, command, (times) => {
        this.#repeat = times
      })
    try {
      await this.#call(command)
    } catch (error) {
      if (!(error instanceof CommandFailure) || !isOn(this.#context, 'ignore-errors')) throw error
      this.#context.io.stderr.write(`agent-ctl: ${messageOf(error)}\n`)
    }
    // The agent ends with its sandbox.
    return command.name.toLowerCase() === 'destroysandbox'
  }

  async #call(command: ReferenceCommand): Promise<void> {
    const { signal, timeoutMs } = this.#context
    const method = describedMethod(command.name)
    const options = { signal, timeoutMs, metadata: METADATA }
    for await (const payload of referenceRequests(method, command, this.#state)) {
      const answer = await callMethod(await this.#context.session(), method, payload, options)
      await printJson(this.#context, { call: method.name, answer })
    }
  }
}

type BuiltIn = (
  context: Context,
  command: ReferenceCommand,
  repeat: (times: number) => void,
) => Promise<boolean>

async function list(context: Context): Promise<boolean> {
  const names = [...Object.keys(BUILT_INS), ...METHODS.map(({ method }) => method)]
  await print(context, names.map((name) => `${name}\n`).join(''))
  return false
}

const BUILT_INS: Readonly<Record<string, BuiltIn>> = {
  echo: async (context, { words }) => {
    await print(context, `${words.join(' ')}\n`)
    return false
  },
  help: list,
  list,
  quit: async () => true,
  exit: async () => true,
  sleep: async ({ signal }, { words }) => {
    await delay(parseDuration('sleep', words[0] ?? ''), undefined, { signal })
    return false
  },
  repeat: async (_context, { words }, repeat) => {
    if (!/^\d{1,9}$/.test(words[0] ?? '')) throw new UsageError(`repeat ${words[0] ?? ''}: want a number`)
    repeat(Number(words[0]))
    return false
  },
}
