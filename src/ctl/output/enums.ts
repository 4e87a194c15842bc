/** The enum value's name in the proto; the number if this version does not know the value. */
export function enumName(values: Readonly<Record<string, number>>, value: number): string {
  return Object.keys(values).find((name) => values[name] === value) ?? String(value)
}
