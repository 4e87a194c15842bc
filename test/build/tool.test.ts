import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { tool } from '../../src/build/tool.ts'

const options = { debianPackage: 'some-package' }

describe('tool', () => {
  it('returns the output of the program', async () => {
    expect(await tool('echo', ['there'], options)).toBe('there\n')
  })

  it('names the package of a program that is not installed', async () => {
    await expect(tool('no-such-program', [], options)).rejects.toThrow(
      'no-such-program: not found, want it installed: apt-get install some-package',
    )
  })

  it('names the command and the last line of its stderr', async () => {
    await expect(tool('sh', ['-c', 'echo one >&2; echo two >&2; exit 127'], options)).rejects.toThrow(
      /: two$/,
    )
  })

  it('ends the program when its signal is aborted', async () => {
    const abort = new AbortController()
    const running = tool('sleep', ['1000'], { ...options, signal: abort.signal })
    abort.abort()
    await expect(running).rejects.toThrow()
  })

  it('ends the program with the process that started it, even when that is killed', () => {
    const program = 'exec 2>/proc/$PPID/fd/1; echo up >&2; kill -KILL $PPID; exec sleep 1000'
    const script = `
      import { tool } from ${JSON.stringify(join(import.meta.dirname, '../../src/build/tool.ts'))}
      await tool('sh', ['-c', ${JSON.stringify(program)}], { debianPackage: 'none' })`
    // cat reads until the last holder of its pipe has ended.
    const pipeline = ['-c', '"$0" --input-type=module -e "$1" | cat', process.execPath, script]
    const { status, stdout } = spawnSync('sh', pipeline, { encoding: 'utf8', timeout: 20_000 })
    expect({ status, stdout }).toEqual({ status: 0, stdout: 'up\n' })
  }, 30_000)
})
