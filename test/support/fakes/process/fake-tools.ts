import { abortable, neverAborted } from '../../../../src/base/abort.ts'
import { AgentError } from '../../../../src/base/errors.ts'
import type { ToolResult, Tools } from '../../../../src/os/process/tools.ts'

type Options = NonNullable<Parameters<Tools['run']>[1]>
type Answer = Partial<ToolResult> | Promise<Partial<ToolResult>>

/**
 * Programs whose results come from scripts. A script answers a call, or returns undefined to pass it on. A signal that
 * fires ends the wait, as it kills a program.
 */
export class FakeTools implements Tools {
  readonly calls: { readonly argv: readonly string[]; readonly options: Options }[] = []
  readonly #scripts: ((argv: readonly string[], options: Options) => Answer | undefined)[] = []

  /** Adds a script before the others. Missing members of its answer are 0 and ''. */
  script(script: (argv: readonly string[], options: Options) => Answer | undefined): void {
    this.#scripts.unshift(script)
  }

  async startOnTerminal(argv: readonly [string, ...string[]]): Promise<never> {
    throw new AgentError('INTERNAL', `start ${argv[0]}: ENOENT`)
  }

  async run(argv: readonly [string, ...string[]], options: Options = {}): Promise<ToolResult> {
    options.signal?.throwIfAborted()
    this.calls.push({ argv, options })
    for (const script of this.#scripts) {
      const answer = script(argv, options)
      if (answer === undefined) continue
      const result = await abortable(Promise.resolve(answer), options.signal ?? neverAborted)
      return { exitCode: 0, stdout: '', stderr: '', ...result }
    }
    throw new AgentError('INTERNAL', `start ${argv[0]}: no script of the test answers ${argv.join(' ')}`)
  }
}
