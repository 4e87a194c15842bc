import { type ChildProcessByStdio, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { processState } from '../../support/processes.ts'

const IN_OWN_SESSION = join(import.meta.dirname, '../../support/programs/in-own-session.mjs')

/** Prints its pid, then each signal that it receives, until its stdin ends. */
const LISTENER = `
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGWINCH', 'SIGCONT']) process.on(name, console.log)
  process.stdin.resume()
  console.log(process.pid)`

interface Listening {
  readonly outer: ChildProcessByStdio<Writable, Readable, null>
  readonly innerPid: number
  /** The next line of the inner process; undefined at its end. */
  readonly line: () => Promise<string | undefined>
}

async function listen(): Promise<Listening> {
  const outer = spawn(process.execPath, [IN_OWN_SESSION, process.execPath, '-e', LISTENER], {
    detached: true,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const lines = createInterface(outer.stdout)[Symbol.asyncIterator]()
  const line = async (): Promise<string | undefined> => (await lines.next()).value
  return { outer, innerPid: Number(await line()), line }
}

function pidOf({ outer }: Listening): number {
  if (outer.pid === undefined) throw new Error('not started')
  return outer.pid
}

describe('runInOwnSession', () => {
  it.each([
    ['exit 7', 7],
    ['kill -KILL $$', 137],
  ])('ends with the status of %s', (script, expected) => {
    const { status, stdout } = spawnSync(process.execPath, [IN_OWN_SESSION, 'sh', '-c', `cat; ${script}`], {
      input: 'passed through',
      encoding: 'utf8',
    })
    expect({ status, stdout }).toEqual({ status: expected, stdout: 'passed through' })
  })

  it.each(['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGWINCH'] as const)(
    'passes %s on once, also when the whole process group gets it',
    async (signal) => {
      const listening = await listen()
      process.kill(-pidOf(listening), signal)
      expect(await listening.line()).toContain(signal)
      listening.outer.stdin.end()
      expect(await listening.line()).toBeUndefined()
      expect(listening.outer.exitCode ?? (await once(listening.outer, 'exit'))[0]).toBe(0)
    },
  )

  it('stops and continues with its program', async () => {
    const listening = await listen()
    const pids = [pidOf(listening), listening.innerPid]
    listening.outer.kill('SIGTSTP')
    await expect.poll(() => pids.map((pid) => processState(pid)?.state)).toEqual(['T', 'T'])
    listening.outer.kill('SIGCONT')
    expect(await listening.line()).toContain('SIGCONT')
    listening.outer.stdin.end()
    await once(listening.outer, 'exit')
  })

  it('ends its program when it is killed', async () => {
    const outer = spawn(process.execPath, [IN_OWN_SESSION, 'sh', '-c', 'echo up; exec sleep 1000'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    await once(outer.stdout, 'readable')
    outer.kill('SIGKILL')
    // The program holds the other end until it has ended.
    expect(await text(outer.stdout)).toBe('up\n')
  })
})
