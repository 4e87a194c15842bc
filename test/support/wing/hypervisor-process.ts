import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { projectRoot } from '../../../src/build/project.ts'
import { ConsoleIO, VMSpec } from '../../../src/gen/vm.ts'
import { daemonClient } from '../host-wing/running-daemon.ts'

export interface HypervisorProcess {
  readonly process: ChildProcess
  /** All of its log so far. */
  readonly log: () => string
  /** Resolves once the log has the text. Rejects with the log when the process ends before. */
  until(text: string): Promise<void>
  /** Resolves with the exit status, or the signal. */
  readonly ended: Promise<number | string>
}

/** Starts `./microvm hypervisor` below the words of `enter`. */
export function startHypervisor(
  spec: Partial<VMSpec>,
  {
    words,
    env = {},
    enter = [],
  }: {
    readonly words: readonly string[]
    readonly env?: Readonly<Record<string, string>>
    readonly enter?: readonly string[]
  },
): HypervisorProcess {
  const main = join(projectRoot, 'src/microvm/main.ts')
  const [program = '', ...argv] = [...enter, process.execPath, main, 'hypervisor', ...words]
  const VM_SPEC = Buffer.from(VMSpec.encode(VMSpec.fromPartial(spec)).finish()).toString('base64')
  const child = spawn(program, argv, {
    env: { ...process.env, MICROVM_ACCEL: 'tcg', VM_SPEC, ...env },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let log = ''
  let news = Promise.withResolvers<void>()
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    log += text
    news.resolve()
    news = Promise.withResolvers()
  })
  const ended = new Promise<number | string>((resolve) =>
    child.once('close', (code, signal) => resolve(code ?? signal ?? '')),
  )
  return {
    process: child,
    log: () => log,
    ended,
    async until(text) {
      while (!log.includes(text)) {
        const over = await Promise.race([news.promise, ended])
        if (over !== undefined && !log.includes(text))
          throw new Error(`ended (${over}) before ${text}:\n${log}`)
      }
    },
  }
}

/** Resolves with the console, by a call that names no instance, once it has the text. */
export async function untilPrinted(stateFolder: string, text: string): Promise<string> {
  const client = daemonClient(join(stateFolder, 'hypervisor.sock'))
  const { call, answers, ended } = client.open('metropolis.proto.vm.OOBManagement/Console')
  const all = () =>
    answers.map((each) => Buffer.from(ConsoleIO.decode(each).data).toString('latin1')).join('')
  while (!all().includes(text)) {
    const data = new Promise<boolean>((next) => call.once('data', () => next(false)))
    if (await Promise.race([data, ended.then(() => true)]))
      throw new Error(`the console ended before ${text}:\n${all()}`)
  }
  client.close()
  return all()
}
