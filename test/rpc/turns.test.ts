import { setImmediate } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { Turns } from '../../src/rpc/turns.ts'

describe('Turns', () => {
  it('runs a limited number of tasks in a turn, and the rest in later turns', async () => {
    const ran: number[] = []
    const inTurn = new Turns(2).connection()
    for (const task of [1, 2, 3, 4, 5]) inTurn(() => void ran.push(task))
    expect(ran).toEqual([1, 2])
    await setImmediate()
    expect(ran).toEqual([1, 2, 3, 4])
    await setImmediate()
    expect(ran).toEqual([1, 2, 3, 4, 5])
  })

  it('runs tasks of all connections one after the other, and those of one in their order', async () => {
    const ran: string[] = []
    const turns = new Turns(1)
    const [many, few] = [turns.connection(), turns.connection()]
    for (const task of ['many 1', 'many 2', 'many 3', 'many 4']) many(() => void ran.push(task))
    for (const task of ['few 1', 'few 2']) few(() => void ran.push(task))
    for (let turn = 0; turn < 5; turn += 1) await setImmediate()
    expect(ran).toEqual(['many 1', 'many 2', 'few 1', 'many 3', 'few 2', 'many 4'])
  })

  it('runs a task at once when none has run in this turn', async () => {
    const ran: number[] = []
    const inTurn = new Turns(1).connection()
    inTurn(() => void ran.push(1))
    await setImmediate()
    inTurn(() => void ran.push(2))
    expect(ran).toEqual([1, 2])
  })

  it('runs tasks that tasks have added after those that wait', async () => {
    const ran: number[] = []
    const inTurn = new Turns(1).connection()
    inTurn(() => inTurn(() => void ran.push(2)))
    inTurn(() => void ran.push(3))
    for (let turn = 0; turn < 3; turn += 1) await setImmediate()
    expect(ran).toEqual([2, 3])
  })
})
