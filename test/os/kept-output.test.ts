import { execFileSync } from 'node:child_process'
import { beforeAll, describe, expect, it } from 'vitest'
import { buildKeptSteps } from '../support/vminit/compiled.ts'

describe('the relay of an output that resumes', () => {
  let program: string
  beforeAll(async () => {
    program = await buildKeptSteps()
  })

  const readBy = (name: string) => execFileSync(program, [name], { encoding: 'utf8' }).split('|').slice(0, -1)

  it('goes on when the process writes just after its pipe was found empty', () => {
    expect(readBy('late')).toEqual(['one', 'waits for the process', 'late'])
  })

  it('takes no more than its pipe has places, until its reader has some of them', () => {
    expect(readBy('full')).toEqual(['0 more than 16', 'does not wait for the process', '2 more'])
  })

  it('keeps what is not acknowledged when bytes are dropped in parts', () => {
    for (const name of ['drop-interrupted', 'drop-failed'])
      expect(readBy(name), name).toEqual(['onetwo', 'two'])
  })

  it('sends each byte once when it is interrupted while it loses its connection', () => {
    expect(readBy('detach-interrupted')).toEqual(['onetwo'])
  })
})
