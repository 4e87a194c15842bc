import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'

export interface SystemCall {
  /** Microseconds since 1970, when the call begins. */
  readonly atUs: number
  readonly isMain: boolean
  readonly text: string
  /** The call begins a turn of the event loop. */
  readonly isTurn: boolean
  /** The call wakes the event loop from another thread. */
  readonly isHop: boolean
  readonly stateBytes: number
}

/** Traces the threads that a process has now, but no program that it starts. */
export async function traceThreads(pid: number): Promise<{ end(): Promise<readonly SystemCall[]> }> {
  const folder = makeTemporaryFolder(tmpdir())
  const threads = readdirSync(`/proc/${pid}/task`)
  const prefix = join(folder, 'trace')
  const options = ['--output-separately', '-ttt', '-s', '256', '-o', prefix]
  const strace = spawn('strace', [...options, ...threads.flatMap((thread) => ['-p', thread])], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const ended = once(strace, 'close')
  let said = ''
  for await (const chunk of strace.stderr) {
    said += String(chunk)
    if ((said.match(/attached/g) ?? []).length >= threads.length) break
  }
  if (!said.includes('attached')) throw new Error(`strace: ${said}`)
  return {
    end: async () => {
      strace.kill('SIGINT')
      await ended
      const calls = threads.flatMap((thread) =>
        systemCallsOf(readFileSync(`${prefix}.${thread}`, 'utf8'), Number(thread) === pid),
      )
      removeTemporaryFolder(folder)
      return calls.toSorted((a, b) => a.atUs - b.atUs)
    },
  }
}

function systemCallsOf(trace: string, isMain: boolean): readonly SystemCall[] {
  let stateFd = ''
  return trace.split('\n').flatMap((line) => {
    const [, seconds = '', text = ''] = /^(\d+\.\d+) ([a-z].*)$/.exec(line) ?? []
    if (text === '') return []
    const [, result = ''] = / = (-?\d+)[^=]*$/.exec(text) ?? []
    if (/^open.*unfinished\.new/.test(text)) stateFd = result
    const isStateWrite = stateFd !== '' && new RegExp(`^p?write(v|64)?\\(${stateFd},`).test(text)
    if (text.startsWith(`close(${stateFd})`)) stateFd = ''
    return [
      {
        atUs: Math.round(Number(seconds) * 1e6),
        isMain,
        text,
        isTurn: isMain && text.startsWith('epoll_') && text.includes('wait'),
        isHop: !isMain && /^write\(\d+, "\\1\\0\\0\\0\\0\\0\\0\\0", 8\)/.test(text),
        stateBytes: isStateWrite ? Number(result) : 0,
      },
    ]
  })
}
