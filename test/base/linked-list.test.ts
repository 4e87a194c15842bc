import { describe, expect, it } from 'vitest'
import { type Linked, LinkedList } from '../../src/base/linked-list.ts'

interface Named extends Linked<Named> {
  readonly name: string
}

function named(name: string): Named {
  return { name, earlier: undefined, later: undefined }
}

describe('LinkedList', () => {
  it.each([
    ['a', 'bc'],
    ['b', 'ac'],
    ['c', 'ab'],
  ])('keeps its order without %s, which may be added again', (left, rest) => {
    const list = new LinkedList<Named>()
    const nodes = [...'abc'].map(named)
    for (const node of nodes) list.add(node)
    const names = () => [...list].map(({ name }) => name).join('')
    expect([names(), list.size]).toEqual(['abc', 3])
    const leaving = nodes.find(({ name }) => name === left) ?? expect.fail()
    list.remove(leaving)
    expect([names(), list.size]).toEqual([rest, 2])
    expect(leaving).toEqual(named(left))
    list.add(leaving)
    expect(names()).toBe(`${rest}${left}`)
    for (const node of nodes) list.remove(node)
    expect([names(), list.size]).toEqual(['', 0])
    expect(nodes).toEqual([...'abc'].map(named))
  })
})
