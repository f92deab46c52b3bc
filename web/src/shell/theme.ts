// Light, dark, or as the system says. The colours themselves are light-dark() pairs in style/base.css.
import { useLayoutEffect, useState } from 'preact/hooks';

export type Theme = 'auto' | 'light' | 'dark';
const kOrder: Theme[] = ['auto', 'light', 'dark'];
const kStorageName = 'hone.theme';

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(() => kOrder.find(t => t === localStorage.getItem(kStorageName)) ?? 'auto');
  useLayoutEffect(() => {
    // before anything is painted
    document.documentElement.style.colorScheme = theme === 'auto' ? 'light dark' : theme;
    localStorage.setItem(kStorageName, theme);
  }, [theme]);
  return [theme, () => setTheme(kOrder[(kOrder.indexOf(theme) + 1) % kOrder.length]!)];
}
