import { spawnSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { projectRoot } from '../../../src/build/project.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { expectShell, Terminal } from '../../support/terminal.ts'
import { startMicrovm } from '../../support/vm/microvm-process.ts'

const PROGRAM = join(projectRoot, 'test/host/microvm/run-on-agent.ts')

/** The behaviour that needs no microVM; test/vm/microvm/run.test.ts tests the rest. */
describe('./microvm run, on an agent of this machine', () => {
  let folder: string
  let agent: AgentProcess
  let tool: string
  beforeEach(async () => {
    folder = temporaryFolder()
    agent = await startAgent()
    tool = join(folder, 'microvm')
    const root = busyboxRoot(folder)
    writeFileSync(join(root, 'tmp/not-executable'), '', { mode: 0o644 })
    writeFileSync(join(root, 'tmp/other-format'), 'not a program\n', { mode: 0o755 })
    const words = [process.execPath, PROGRAM, agent.path, root]
    writeFileSync(tool, `#!/bin/sh\nexec ${words.join(' ')} "$@"\n`, { mode: 0o755 })
  })
  afterEach(async () => {
    await agent?.stop()
  })

  it('passes 200 MB of a pipe and its end unchanged with -i', async () => {
    const block = randomBytes(1 << 20)
    const hash = createHash('sha256')
    const blocks = function* () {
      for (let count = 0; count < 200; count++) {
        hash.update(block)
        yield block
      }
    }
    const running = startMicrovm(['-i', 'sha256sum'], {}, tool)
    await pipeline(Readable.from(blocks()), running.stdin)
    expect((await running.result).stdout).toBe(`${hash.digest('hex')}  -\n`)
  })

  it('ends with the status of a broken pipe when its output has no reader', () => {
    const pipeline = '{ "$0" run yes; echo $? >&2; } | head -n 1'
    const { stdout, stderr } = spawnSync('sh', ['-c', pipeline, tool], { encoding: 'utf8' })
    expect({ stdout, stderr }).toEqual({ stdout: 'y\n', stderr: '141\n' })
  })

  it('says in one line that its output cannot be written', () => {
    const { status, stderr } = spawnSync('sh', ['-c', '"$0" run echo out >/dev/full', tool], {
      encoding: 'utf8',
    })
    expect(status).toBe(125)
    expect(stderr).toMatch(/^microvm: cannot write the output: .*ENOSPC.*\n$/)
  })

  it('is a terminal that resizes and lives through Ctrl-C', async () => {
    await expectShell(new Terminal([tool, 'run', '-it', 'sh']))
  })

  it.each([
    ['nosuch', 127, 'was not found'],
    ['/tmp/not-executable', 126, 'cannot be executed'],
  ])(
    'says in one line that %s cannot be started, with docker’s status %d',
    async (program, status, fault) => {
      const running = startMicrovm([program], {}, tool)
      running.stdin.end()
      const result = await running.result
      expect(result).toMatchObject({ status, stdout: '' })
      expect(result.stderr).toMatch(new RegExp(`^microvm: the file ${program} ${fault}: .*\n$`))
    },
  )

  it('passes on the OCI runtime’s line and status for a program of another format', async () => {
    const running = startMicrovm(['/tmp/other-format'], {}, tool)
    running.stdin.end()
    const stderr = 'exec /tmp/other-format: exec format error\n'
    expect(await running.result).toMatchObject({ status: 255, stderr })
  })
})
