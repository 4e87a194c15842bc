import { spawnSync } from 'node:child_process'
import { fileFailure } from '../../../client/files/file-failure.ts'
import { CommandFailure, type Context, EXIT, UsageError } from '../../command.ts'
import { printAs } from '../../output/print.ts'
import type { RecordingNotes } from '../../recording/notes.ts'
import { play } from '../../recording/player.ts'
import {
  type RecordedCall,
  type RecordedLine,
  type Recording,
  readRecording,
} from '../../recording/recording.ts'

export async function run(context: Context): Promise<number> {
  const { values } = context
  const recording = readOrRefuse(values.argument('FILE'))
  const differences: { readonly line: number; readonly call: string; readonly difference: string }[] = []
  const differs = (line: RecordedLine, error: Error) =>
    void differences.push({
      line: line.line,
      call: line.kind === 'call' ? line.method : line.kind,
      difference: error.message.replace(`${recording.name}, line ${line.line}, `, ''),
    })
  // Fails before the first call when there is no agent.
  await context.session()
  const prepare = async (call: RecordedCall) => prepareWith(values.text('prepare'), call)
  const place = { dial: () => context.dial(), prepare, differs }
  const calls = await play(recording, notesOf(recording, values.flag('strict')), place, values.text('until'))
  for (const each of differences)
    await printAs(context, { text: `line ${each.line}, ${each.difference}\n`, value: each })
  const found = `${differences.length} ${differences.length === 1 ? 'difference' : 'differences'}`
  await printAs(context, {
    text: `${recording.name}: ${calls} calls, ${found}\n`,
    value: { recording: recording.name, calls, differences: differences.length },
  })
  return differences.length === 0 ? 0 : EXIT.failed
}

/** Throws {@link CommandFailure} when the program fails. */
function prepareWith(program: string | undefined, { method, request }: RecordedCall): void {
  if (program === undefined || method !== 'CreateContainer') return
  const stdio = ['pipe', 'inherit', 'inherit'] as const
  const { error, status } = spawnSync(program, { input: JSON.stringify(request), stdio: [...stdio] })
  const text = error === undefined ? `${program}: exit status ${status}` : fileFailure(program, error)
  if (error !== undefined || status !== 0) throw new CommandFailure(EXIT.cannotRun, `--prepare: ${text}`)
}

function readOrRefuse(path: string): Recording {
  try {
    return readRecording(path)
  } catch (error) {
    throw new UsageError(fileFailure(path, error), { cause: error })
  }
}

/** Only the name tells the caller: a shim reads each stream in a loop, kata-agent-ctl does not. */
function notesOf({ name }: Recording, isStrict: boolean): RecordingNotes {
  return {
    answeredBy: isStrict ? 'the reference' : 'this agent',
    readsInLoops: !name.startsWith('agent-ctl.'),
    texts: {},
    unknownText: /^/,
    leftOut: () => [],
    differenceAt: () => undefined,
  }
}
